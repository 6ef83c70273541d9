"""The least total of slot sizes, by branch and bound."""

from dataclasses import dataclass

import numpy as np

from lowtide.frameworks.caffe2.sharing.level_bound import LevelBound
from lowtide.frameworks.caffe2.sharing.slot_arrays import Integers, Intervals, greedy, largest_first, total_bytes

_MOST_TO_SEARCH = 5_000


@dataclass(frozen=True, slots=True, eq=False)
class FoundSlots:
    """A slot per blob, and how good it is."""

    slot_of: Integers
    lower_bound_bytes: int
    optimal: bool
    work: int


def search(intervals: Intervals, work_limit: int) -> FoundSlots:
    """Place blobs from the largest to the smallest, each in an open slot at no cost or in a new one at its own size.

    Open slots are tried from the tightest gap on; of slots that look alike to the blobs still to come, only the first.
    A branch ends where its cost plus what `LevelBound` still asks for reaches the best known. The first best are the
    greedy slots, so the result is never worse. The tree is walked by limited discrepancy (Harvey & Ginsberg 1995):
    first without a detour from the first choices, then with a few more each time, until nothing is left out.
    `work_limit` bounds the slots that are looked at. Finding the least total is NP-hard (weighted coloring of an
    interval graph), so the time is exponential where the bounds do not meet. Beyond 5,000 blobs, each goes into the
    tightest gap once, and nothing is searched.
    """
    known = greedy(intervals)
    if not len(intervals):
        return FoundSlots(known, 0, optimal=True, work=0)
    by_size: list[int] = np.argsort(-intervals.sizes, kind="stable").tolist()
    starts = np.unique(intervals.begins)  # two blobs are live together iff both are at one of their starts
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


@dataclass(slots=True)
class _Level:
    """The choices for one blob, how many of them were tried, and the detours made above."""

    choices: list[int]
    detours: int
    tried: int = 0


class _SlotWalk:
    """The search tree, one level a blob, walked depth first without recursion."""

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
        self._to_come = [0] * (len(self._spans) + 1)
        for place in range(len(self._spans) - 1, -1, -1):
            self._to_come[place] = self._to_come[place + 1] | self._spans[place]
        self._taken: list[int] = []  # per open slot, the sections in which it is taken
        self._slots: list[int] = []  # per place, the slot it went to
        self._cost = 0

    def run(self, most_detours: int) -> bool:
        """Walk the tree with that many detours at most; returns whether nothing better can be left."""
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
            if self._cost + self._bound.still_to_open(place + 1, len(self._taken)) >= self._best_cost:
                continue
            if place + 1 == len(self._spans):
                self._best_cost = self._cost
                self.best = np.empty(len(self._slots), np.int64)
                self.best[self._by_size] = self._slots
            else:
                levels.append(_Level(self._choices(place + 1), detours))
        return complete or self._best_cost == self._bound.total

    def _place(self, place: int, slot: int) -> None:
        if slot == len(self._taken):
            self._taken.append(0)
            self._cost += self._sizes[place]
        self._taken[slot] |= self._spans[place]
        self._slots.append(slot)

    def _undo(self, place: int) -> None:
        slot = self._slots.pop()
        self._taken[slot] ^= self._spans[place]
        if self._taken[slot] == 0:  # only the newest slot can become empty
            self._taken.pop()
            self._cost -= self._sizes[place]

    def _choices(self, place: int) -> list[int]:
        """The slots to try for a blob: open ones that are free, the tightest first, and a new one."""
        span, to_come = self._spans[place], self._to_come[place]
        seen: set[int] = set()
        fitting: list[tuple[int, int]] = []
        for slot, taken in enumerate(self._taken):
            matters = taken & to_come
            if not taken & span and matters not in seen:
                seen.add(matters)
                fitting.append((self._gap(taken, place), slot))
        self.work += len(self._taken) + 1
        return [slot for _, slot in sorted(fitting)] + [len(self._taken)]

    def _gap(self, taken: int, place: int) -> int:
        """How many sections the slot is free around a blob."""
        below = taken & ((1 << self._first[place]) - 1)
        above = taken >> self._end[place]
        free_above = (above & -above).bit_length() - 1 if above else self._n_sections - self._end[place]
        return self._first[place] - below.bit_length() + free_above
