"""Find the smallest slots by branch and bound."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_MOST_TO_SEARCH = 5_000

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Live ranges, both ends included, and sizes in bytes."""

    begins: Integers
    ends: Integers
    sizes: Integers

    def __len__(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class FoundSlots:
    slot_of: Integers
    lower_bound_bytes: int
    optimal: bool
    work: int


def search(intervals: Intervals, work_limit: int) -> FoundSlots:
    """Return slots with a small total size, never larger than those of `greedy`; deterministic.

    Branch and bound over blobs by descending size, walked by limited discrepancy (Harvey & Ginsberg 1995) until
    `work_limit` slots were visited. The optimum is NP-hard (weighted coloring of an interval graph). More than
    5,000 blobs are placed once.
    """
    known = greedy(intervals)
    if not len(intervals):
        return FoundSlots(known, 0, optimal=True, work=0)
    by_size: list[int] = np.argsort(-intervals.sizes, kind="stable").tolist()
    starts = np.unique(intervals.begins)  # two blobs are live together iff both are live at one of these
    first = np.searchsorted(starts, intervals.begins)
    last = np.searchsorted(starts, intervals.ends, side="right") - 1
    bound = LevelBound(intervals, by_size, first, last)
    if len(intervals) > _MOST_TO_SEARCH:
        found, work = largest_first(intervals, by_size, work_limit)
        if found is not None and total_bytes(intervals, found) < total_bytes(intervals, known):
            known = found
        return FoundSlots(known, bound.total, optimal=total_bytes(intervals, known) == bound.total, work=work)
    walk = _SlotWalk(intervals, by_size, (first, last), bound, known, work_limit)
    detours, finished = 0, False
    while not finished and walk.work < work_limit:
        finished = walk.run(detours)
        detours = max(detours + 1, detours * 3 // 2)
    best = total_bytes(intervals, walk.best)
    optimal = finished or best == bound.total
    return FoundSlots(walk.best, best if optimal else bound.total, optimal=optimal, work=walk.work)


def slot_sizes(intervals: Intervals, slot_of: Integers) -> Integers:
    largest = np.zeros(int(slot_of.max(initial=-1)) + 1, np.int64)
    np.maximum.at(largest, slot_of, intervals.sizes)
    return largest


def total_bytes(intervals: Intervals, slot_of: Integers) -> int:
    return sum(slot_sizes(intervals, slot_of).tolist())


def greedy(intervals: Intervals, by_use: Integers | None = None) -> Integers:
    """Return the slot of each blob: the free slot of nearest size, oldest first, else a new one.

    Blobs are placed in the order `by_use`, by default by last use. O(n * slots). Source: Caffe2 memonger,
    compute_assignments_greedy.
    """
    count = 0
    free_from = np.zeros(len(intervals), np.int64)
    largest = np.zeros(len(intervals), np.int64)
    slot_of = np.zeros(len(intervals), np.int64)
    for blob in (np.argsort(intervals.ends, kind="stable") if by_use is None else by_use).tolist():
        size = intervals.sizes[blob]
        compatible = np.flatnonzero(free_from[:count] < intervals.begins[blob])
        if len(compatible):
            slot = int(compatible[np.argmin(np.abs(largest[compatible] - size))])
        else:
            slot, count = count, count + 1
        slot_of[blob] = slot
        free_from[slot] = intervals.ends[blob]
        largest[slot] = max(largest[slot], size)
    return slot_of


def largest_first(intervals: Intervals, by_size: list[int], work_limit: int) -> tuple[Integers | None, int]:
    """Place blobs by size in the tightest gap, else in a new slot; return slots, or None over the limit, and the work.

    O(n * slots * log n).
    """
    begins: list[int] = intervals.begins.tolist()
    ends: list[int] = intervals.ends.tolist()
    before, after = min(begins) - 1, max(ends) + 1
    open_slots: list[tuple[list[int], list[int]]] = []  # ascending begins and ends in each slot
    slot_of = np.zeros(len(intervals), np.int64)
    work = 0
    for blob in by_size:
        begin, end = begins[blob], ends[blob]
        work += len(open_slots)
        if work > work_limit:
            return None, work
        best, tightest, at = len(open_slots), after - before + 1, 0
        for slot, (starts, stops) in enumerate(open_slots):
            place = bisect_right(starts, begin)
            former = stops[place - 1] if place else before
            latter = starts[place] if place < len(starts) else after
            if former < begin and end < latter and latter - former < tightest:
                best, tightest, at = slot, latter - former, place
        if best == len(open_slots):
            open_slots.append(([], []))
        open_slots[best][0].insert(at, begin)
        open_slots[best][1].insert(at, end)
        slot_of[blob] = best
    return slot_of, work


class LevelBound:
    """A lower bound on the bytes of all slots, given the number of open slots.

    For every size, at least as many slots as live blobs have this size or more. O(n * (n + sizes)) to build, O(log
    sizes) per query.
    """

    def __init__(self, intervals: Intervals, by_size: list[int], first: Integers, last: Integers):
        live = np.zeros(len(intervals), np.int64)
        sizes: list[int] = []
        self._needed: list[int] = []  # slots per level, ascending
        self._level_of: list[int] = []  # by position in `by_size`
        for place, blob in enumerate(by_size):
            live[first[blob] : last[blob] + 1] += 1
            size = int(intervals.sizes[blob])
            self._level_of.append(len(sizes))
            if place + 1 == len(by_size) or intervals.sizes[by_size[place + 1]] < size:
                sizes.append(size)
                self._needed.append(int(live.max()))
        self._level_of.append(len(sizes))
        self._sizes = [*sizes, 0]
        self._from_level = [0]
        for (larger, smaller), needed in zip([*pairwise(self._sizes)][::-1], self._needed[::-1], strict=True):
            self._from_level.append(self._from_level[-1] + (larger - smaller) * needed)
        self._from_level.reverse()

    @property
    def total(self) -> int:
        return self._from_level[0]

    def still_to_open(self, place: int, n_open: int) -> int:
        """Return the least bytes of new slots once the blobs before `place` occupy `n_open` slots."""
        level = max(self._level_of[place], bisect_right(self._needed, n_open))
        return self._from_level[level] - n_open * self._sizes[level]


@dataclass(slots=True)
class _Level:
    choices: list[int]
    detours: int
    tried: int = 0


class _SlotWalk:
    def __init__(
        self,
        intervals: Intervals,
        by_size: list[int],
        sections: tuple[Integers, Integers],
        bound: LevelBound,
        known: Integers,
        work_limit: int,
    ) -> None:
        self.best = known
        self.work = 0
        self._bound = bound
        self._best_cost = total_bytes(intervals, known)
        self._limit = work_limit
        self._by_size = by_size
        self._sizes: list[int] = intervals.sizes[by_size].tolist()
        self._first: list[int] = sections[0][by_size].tolist()
        self._end: list[int] = (sections[1][by_size] + 1).tolist()
        self._n_sections = max(self._end)
        self._spans = [(1 << end) - (1 << start) for start, end in zip(self._first, self._end, strict=True)]
        self._remaining = [0] * (len(self._spans) + 1)
        for place in range(len(self._spans) - 1, -1, -1):
            self._remaining[place] = self._remaining[place + 1] | self._spans[place]
        self._occupied: list[int] = []  # sections in use of each open slot, as bits
        self._slots: list[int] = []  # the slot of each placed blob
        self._cost = 0

    def run(self, most_detours: int) -> bool:
        complete = True
        levels = [_Level(self._choices(0), 0)]
        while levels and self._best_cost > self._bound.total:
            if self.work >= self._limit:
                return False
            place, level = len(levels) - 1, levels[-1]
            if len(self._slots) > place:
                self._undo(place)
            detours = level.detours + (level.tried > 0)
            if level.tried == len(level.choices) or detours > most_detours:
                complete = complete and level.tried == len(level.choices)
                levels.pop()
                continue
            self._place(place, level.choices[level.tried])
            level.tried += 1
            if self._cost + self._bound.still_to_open(place + 1, len(self._occupied)) >= self._best_cost:
                continue
            if place + 1 == len(self._spans):
                self._best_cost = self._cost
                self.best = np.empty(len(self._slots), np.int64)
                self.best[self._by_size] = self._slots
            else:
                levels.append(_Level(self._choices(place + 1), detours))
        return complete or self._best_cost == self._bound.total

    def _place(self, place: int, slot: int) -> None:
        if slot == len(self._occupied):
            self._occupied.append(0)
            self._cost += self._sizes[place]
        self._occupied[slot] |= self._spans[place]
        self._slots.append(slot)

    def _undo(self, place: int) -> None:
        slot = self._slots.pop()
        self._occupied[slot] ^= self._spans[place]
        if self._occupied[slot] == 0:  # only the newest slot can become empty
            self._occupied.pop()
            self._cost -= self._sizes[place]

    def _choices(self, place: int) -> list[int]:
        span, remaining = self._spans[place], self._remaining[place]
        seen: set[int] = set()
        fitting: list[tuple[int, int]] = []
        for slot, occupied in enumerate(self._occupied):
            matters = occupied & remaining
            if not occupied & span and matters not in seen:
                seen.add(matters)
                fitting.append((self._gap(occupied, place), slot))
        self.work += len(self._occupied) + 1
        return [slot for _, slot in sorted(fitting)] + [len(self._occupied)]

    def _gap(self, occupied: int, place: int) -> int:
        below = occupied & ((1 << self._first[place]) - 1)
        above = occupied >> self._end[place]
        free_above = (above & -above).bit_length() - 1 if above else self._n_sections - self._end[place]
        return self._first[place] - below.bit_length() + free_above
