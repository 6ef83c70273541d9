"""Slots on flat arrays: which blobs follow one another in the same storage."""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """When every blob is live, from `begins` to `ends` with both included, and its size in bytes."""

    begins: Integers
    ends: Integers
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sizes)


def total_bytes(intervals: Intervals, slot_of: Integers) -> int:
    """Return the sum over the slots of the largest blob in each."""
    largest = np.zeros(int(slot_of.max(initial=-1)) + 1, np.int64)
    np.maximum.at(largest, slot_of, intervals.sizes)
    return sum(largest.tolist())


def greedy(intervals: Intervals, by_use: Integers | None = None) -> Integers:
    """Return a slot per blob: by last use, each in the compatible slot whose size is nearest, else in a new one.

    A slot is compatible when its last blob ends before the new one begins; ties go to the oldest slot. Blobs of equal
    last use keep their order; `by_use` is another order to take them in. Complexity: O(n * slots).
    Source: Caffe2 memonger, compute_assignments_greedy.
    Guarantees: feasible; never more than the sum of all sizes.
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
    """Return a slot per blob, and the slots looked at: the largest first, each in the tightest gap, else in a new slot.

    Where the work exceeds its limit, there are no slots. Complexity: O(n * slots * log n). Guarantees: feasible.
    """
    begins: list[int] = intervals.begins.tolist()
    ends: list[int] = intervals.ends.tolist()
    before, after = min(begins) - 1, max(ends) + 1
    taken: list[tuple[list[int], list[int]]] = []  # per slot, the begins and the ends of its blobs, ascending
    slot_of = np.zeros(len(intervals), np.int64)
    work = 0
    for blob in by_size:
        begin, end = begins[blob], ends[blob]
        work += len(taken)
        if work > work_limit:
            return None, work
        best, tightest, at = len(taken), after - before + 1, 0
        for slot, (starts, stops) in enumerate(taken):
            place = bisect_right(starts, begin)
            former = stops[place - 1] if place else before
            latter = starts[place] if place < len(starts) else after
            if former < begin and end < latter and latter - former < tightest:
                best, tightest, at = slot, latter - former, place
        if best == len(taken):
            taken.append(([], []))
        taken[best][0].insert(at, begin)
        taken[best][1].insert(at, end)
        slot_of[blob] = best
    return slot_of, work
