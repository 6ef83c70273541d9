"""The least total of slot sizes, by branch and bound."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lowtide.share.level_bound import LevelBound
from lowtide.share.slot_arrays import Intervals, Moments, greedy, total_bytes


@dataclass(frozen=True, slots=True, eq=False)
class FoundSlots:
    """A slot per blob, and how good it is."""

    slot_of: Moments
    lower_bound_bytes: int
    optimal: bool
    work: int


def search(intervals: Intervals, work_limit: int) -> FoundSlots:
    """Place blobs from the largest to the smallest, each in an open slot at no cost or in a new one at its own size.

    Open slots are tried from the tightest gap on, of slots that look alike to what is still to come only the first. A
    branch ends where its cost and what `LevelBound` still asks for reach the best known; the first best is the greedy
    one, which this is never worse than. `work_limit` bounds the slots that are looked at. Finding the least total is
    NP-hard (weighted coloring of an interval graph), so that the time is exponential where the bounds do not meet.
    """
    slot_of = greedy(intervals)
    if not len(intervals):
        return FoundSlots(slot_of, 0, optimal=True, work=0)
    walk = _Walk(intervals, slot_of, work_limit)
    finished = walk.run()
    best = total_bytes(intervals, walk.best)
    return FoundSlots(
        walk.best, best if finished else walk.bound.total, finished or best == walk.bound.total, walk.work
    )


class _Walk:
    """The search tree, one level a blob, walked depth first without recursion."""

    def __init__(self, intervals: Intervals, known: Moments, work_limit: int) -> None:
        self.best = known
        self.work = 0
        self._best_cost = total_bytes(intervals, known)
        self._limit = work_limit
        self._by_size: list[int] = np.argsort(-intervals.sizes, kind="stable").tolist()
        starts = np.unique(intervals.begins)  # two blobs are live together iff both are at one of their starts
        first = np.searchsorted(starts, intervals.begins)
        last = np.searchsorted(starts, intervals.ends, side="right") - 1
        self.bound = LevelBound(intervals, self._by_size, first, last)
        self._sizes: list[int] = intervals.sizes[self._by_size].tolist()
        self._first: list[int] = first[self._by_size].tolist()
        self._end: list[int] = (last[self._by_size] + 1).tolist()
        self._n_starts = len(starts)
        self._spans = [(1 << end) - (1 << start) for start, end in zip(self._first, self._end, strict=True)]
        self._to_come = [0] * (len(self._spans) + 1)
        for place in range(len(self._spans) - 1, -1, -1):
            self._to_come[place] = self._to_come[place + 1] | self._spans[place]
        self._taken: list[int] = []  # per open slot, the starts at which it is taken
        self._slots: list[int] = []  # per place, the slot it went to
        self._cost = 0

    def run(self) -> bool:
        """Search until everything is settled or the work is used up; returns whether all is settled."""
        choices = [self._choices(0)]
        while choices and self._best_cost > self.bound.total:
            if self.work >= self._limit:
                return False
            place = len(choices) - 1
            if len(self._slots) > place:
                self._undo(place)
            slot = next(choices[-1], None)
            if slot is None:
                choices.pop()
                continue
            self._place(place, slot)
            if self._cost + self.bound.still_to_open(place + 1, len(self._taken)) >= self._best_cost:
                continue
            if place + 1 == len(self._spans):
                self._best_cost = self._cost
                self.best = np.empty(len(self._slots), np.int64)
                self.best[self._by_size] = self._slots
            else:
                choices.append(self._choices(place + 1))
        return True

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

    def _choices(self, place: int) -> Iterator[int]:
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
        return iter([slot for _, slot in sorted(fitting)] + [len(self._taken)])

    def _gap(self, taken: int, place: int) -> int:
        """How long the slot is free around a blob, counted in starts."""
        below = taken & ((1 << self._first[place]) - 1)
        above = taken >> self._end[place]
        free_above = (above & -above).bit_length() - 1 if above else self._n_starts - self._end[place]
        return self._first[place] - below.bit_length() + free_above
