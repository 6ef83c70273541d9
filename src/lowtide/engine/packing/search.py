"""The default packer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.effort import PackingEffort
from lowtide.core.progress import Report
from lowtide.engine.packing.bound import Bound, lower_bound
from lowtide.engine.packing.buffers import Ints
from lowtide.engine.packing.improve import Improvement, improve, improve_briefly
from lowtide.engine.packing.items import Items
from lowtide.engine.packing.rules import RULES, stacked

_MOST_FOR_QUADRATIC = 20_000
"""With more items, quadratic rules and the short penalty loop are skipped."""
_SHORT_LOOP = 25_000
"""Work per item of the short penalty loop, about fifty rounds."""
_NEAR = 50
"""Packings of many items at most 1/50 above the goal are repaired by ejection before they are split."""
_MOST_ROUNDS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Subproblem:
    """Items that overlap no others in time, above `base` bytes."""

    ids: NDArray[np.intp]
    base: int


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The parts to solve, and offsets of items at the bottom of parts, else -1."""

    parts: tuple[Subproblem, ...]
    offsets: Ints


class PackSearch:
    """A search for the smallest arena, or for one within a capacity; deterministic and limited by work."""

    def __init__(self, items: Items, capacity: int | None, effort: PackingEffort, report: Report) -> None:
        self.items = items
        self.bound: Bound = lower_bound(items)
        self.offsets: Ints = np.zeros(len(items), np.int64)
        self.height = 0
        self.method = ""
        self.work = 0
        self._capacity = capacity
        self._effort = effort
        self._report = report
        self._parts: Split | None = None
        self._of_parts: Ints | None = None
        self._missed_goals: dict[int, int | None] = {}  # by part: the goal that a brief search missed

    def run(self) -> None:
        self.offer(*self._pack_along_skyline(self.items))
        if not self._is_finished() and len(self.items) <= self._effort.exact_items:
            self._improve_parts(improve_briefly, cheap=False)
        for method, offsets in self._cheap_packings(self.items):
            self.offer(offsets, method)
            if method == "penalty-loop":
                self._repair()
        affordable = self.work <= self._effort.priority_work + self._effort.exact_work
        if not self._is_finished() and affordable:  # otherwise one pass used all work, as for a million items
            self._improve_parts(partial(improve, only_goal=self._capacity is not None), cheap=True)

    def _is_finished(self) -> bool:
        return self.height <= self._goal or self.bound.size_bytes > self._goal

    @property
    def may_still_fit(self) -> bool:
        return self._capacity is not None and not self._is_finished()

    @property
    def _goal(self) -> int:
        return self.bound.size_bytes if self._capacity is None else self._capacity

    def offer(self, offsets: Ints, method: str) -> None:
        height = self.items.height(offsets)
        if not self.method or height < self.height:
            self.offsets, self.height, self.method = offsets, height, method

    def replace(self, offsets: Ints, method: str) -> None:
        self.offsets, self.height, self.method = offsets, self.items.height(offsets), method

    def adopt(self, other: "PackSearch") -> None:
        self.offer(other.offsets, other.method)
        if other.bound.size_bytes > self.bound.size_bytes:
            self.bound = other.bound
        self.work += other.work

    def offer_quick_packing(self) -> None:
        if self.method:
            return
        if len(self.items) <= _MOST_FOR_QUADRATIC or self.items.plain:
            self.offer(RULES["best-fit-by-birth"](self.items), "best-fit-by-birth")
        else:
            self.offer(stacked(self.items), "stacked")

    def _raise_bound(self, size_bytes: int, holders: NDArray[np.intp]) -> None:
        if size_bytes > self.bound.size_bytes:
            self.bound = Bound(size_bytes, tuple(sorted(holders.tolist())))

    def _pack_along_skyline(self, items: Items) -> tuple[Ints, str]:
        # A brief search after one order meets more capacities than nine further orders.
        one_order = self._capacity is not None and len(self.items) <= self._effort.exact_items
        most = 1 if one_order else self._short_work(items)
        offsets, work = _native.pack_by_priority(items.native(), self._goal, False, most)
        self.work += work
        return offsets, "skyline"

    def _repair(self) -> None:
        is_near = self.height <= self._goal + self._goal // _NEAR
        if self._is_finished() or not is_near or not self.items.plain or len(self.items) <= self._effort.exact_items:
            return
        most = self._effort.priority_work
        fit, offsets, work = _native.pack_within_by_ejection(self.items.native(), self.offsets, self._goal, most)
        self.work += work
        if fit == 0:
            self.offer(offsets, "ejection")

    def _short_work(self, items: Items) -> int:
        return min(self._effort.priority_work, _SHORT_LOOP * len(items))

    def _cheap_packings(self, items: Items) -> Iterator[tuple[str, Ints]]:
        few = len(items) <= _MOST_FOR_QUADRATIC
        if few and not self._meets_goal:
            offsets, work = _native.pack_by_priority(items.native(), self._goal, True, self._short_work(items))
            self.work += work
            yield "penalty-loop", offsets
        for name, rule in RULES.items():
            if self._meets_goal:
                return
            if few or (name == "best-fit-by-birth" and items.plain):
                self.work += len(items)
                yield name, rule(items)

    @property
    def _meets_goal(self) -> bool:
        return bool(self.method) and self.height <= self._goal

    def _improve_parts(
        self, lower: Callable[[Improvement, int, PackingEffort], Iterator[None]], *, cheap: bool
    ) -> None:
        if self._parts is None:
            self._parts = split(self.items)
        parts = self._parts
        in_one = len(parts.parts) == 1 and len(parts.parts[0].ids) == len(self.items)
        offsets = self.offsets.copy() if in_one else self._join_parts(parts, cheap=cheap)
        tops = offsets + self.items.sizes
        heights = np.asarray([tops[part.ids].max() for part in parts.parts], np.int64)
        settled = 0  # height reached by a finished part; others need not go lower
        order: list[int] = np.argsort(-heights, kind="stable").tolist()
        for number in order:
            part = parts.parts[number]
            goal = max(self._goal, settled)
            if int(heights[number]) <= goal:
                break
            self._report(f"packing {len(part.ids)} of {len(self.items)} buffers")
            items = self.items.take(part.ids)
            bound = lower_bound(items)
            below = _items_below(self.items, parts, part)
            self._raise_bound(part.base + bound.size_bytes, np.concatenate([below, part.ids[list(bound.holders)]]))
            placed, height = offsets[part.ids] - part.base, int(heights[number]) - part.base
            state = Improvement(items, placed, height, bound.size_bytes, missed_goal=self._missed_goals.get(number))
            for _ in lower(state, goal - part.base, self._effort):
                offsets[part.ids] = part.base + state.offsets
                self.offer(offsets.copy(), state.method)
                self._raise_bound(part.base + state.bound, np.concatenate([below, part.ids]))
            self.work += state.work
            self._missed_goals[number] = state.missed_goal
            self._of_parts = offsets
            settled = max(settled, part.base + state.height)
            if self.bound.size_bytes > self._goal:
                return

    def _join_parts(self, parts: Split, *, cheap: bool) -> Ints:
        ids = np.concatenate([part.ids for part in parts.parts]) if parts.parts else np.zeros(0, np.intp)
        starts = np.cumsum([0, *(len(part.ids) for part in parts.parts[:-1])])
        base = np.repeat([part.base for part in parts.parts], [len(part.ids) for part in parts.parts])
        items = self.items.take(ids)
        if self._of_parts is None:
            offsets, method = self._pack_along_skyline(items)
            best = parts.offsets.copy()
            best[ids] = base + offsets
            self.offer(best.copy(), method)
        else:
            best, offsets = self._of_parts.copy(), self._of_parts[ids] - base
        least = np.maximum.reduceat(offsets + items.sizes, starts) if len(ids) else np.zeros(0, np.int64)
        for method, offsets in self._cheap_packings(items) if cheap else ():
            heights = np.maximum.reduceat(offsets + items.sizes, starts) if len(ids) else np.zeros(0, np.int64)
            chosen = np.repeat(heights < least, np.diff([*starts, len(ids)]))
            best[ids[chosen]] = (base + offsets)[chosen]
            least = np.minimum(least, heights)
            self.offer(best.copy(), method)
        return best


def _items_below(items: Items, parts: Split, part: Subproblem) -> NDArray[np.intp]:
    first, last = items.first[part.ids].min(), items.last[part.ids].max()
    return np.flatnonzero((parts.offsets >= 0) & (items.first < last) & (first < items.last))


def split(items: Items) -> Split:
    """Split items at every moment that no item spans, and put items alive throughout a part at its bottom.

    Items with pieces or fixed offsets are split only by time, items that must be apart not at all.
    """
    offsets = np.full(len(items), -1, np.int64)
    if items.apart is not None:
        return Split((Subproblem(np.arange(len(items)), 0),), offsets)
    done: list[Subproblem] = []
    todo = [Subproblem(np.arange(len(items)), 0)]
    for _ in range(_MOST_ROUNDS):
        if not todo:
            break
        todo = [piece for part in todo for piece in _split_by_time(items, part)]
        rest: list[Subproblem] = []
        for part in todo:
            bottom = _bottom_items(items, part)
            if not len(bottom):
                done.append(part)
                continue
            ends = part.base + np.cumsum(items.sizes[bottom])
            offsets[bottom] = ends - items.sizes[bottom]
            others = np.setdiff1d(part.ids, bottom, assume_unique=True)
            if len(others):
                rest.append(Subproblem(others, int(ends[-1])))
        todo = rest
    return Split((*done, *todo), offsets)


def _split_by_time(items: Items, part: Subproblem) -> list[Subproblem]:
    ids = part.ids[np.argsort(items.first[part.ids], kind="stable")]
    reach = np.maximum.accumulate(items.last[ids])
    cuts = np.flatnonzero(items.first[ids][1:] >= reach[:-1]) + 1
    return [Subproblem(np.sort(piece), part.base) for piece in np.split(ids, cuts)]


def _bottom_items(items: Items, part: Subproblem) -> NDArray[np.intp]:
    if not items.plain:
        return np.zeros(0, np.intp)
    ids = part.ids
    throughout = (items.first[ids] == items.first[ids].min()) & (items.last[ids] == items.last[ids].max())
    step = int(np.lcm.reduce(np.unique(items.alignment[ids])))
    return ids[throughout & (items.sizes[ids] % step == 0)]
