"""Slots as a packing rule, to be held against addresses."""

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UsageError
from lowtide.frameworks.caffe2.sharing.slot_arrays import Intervals, greedy
from lowtide.frameworks.caffe2.sharing.slot_search import search


def slot_offsets(
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    sizes: NDArray[np.int64],
    *,
    alignment: int = 1,
    work_limit: int = 0,
) -> NDArray[np.int64]:
    """Return an offset in bytes per buffer, one stretch of the arena per slot; live ranges are half-open.

    With a `work_limit` the slots are searched for, and at most so many are looked at; without, they are memonger's
    greedy ones. Sizes are rounded up to the alignment. Guarantees: feasible, deterministic; no bound. Raises UsageError
    where arrays differ in length, a range is empty, or a number is out of range.
    """
    if not len(first) == len(last) == len(sizes):
        raise UsageError(f"{len(first)} starts, {len(last)} ends and {len(sizes)} sizes; give one of each per buffer")
    if alignment < 1 or work_limit < 0:
        raise UsageError(f"alignment {alignment} and work limit {work_limit}; give at least 1 and at least 0")
    wrong = np.flatnonzero((first >= last) | (sizes < 0))
    if len(wrong):
        at = int(wrong[0])
        raise UsageError(f"buffer {at}: live from {first[at]} to {last[at]} with {sizes[at]} bytes is no valid buffer")
    if sum(np.asarray(sizes).tolist()) + len(sizes) * alignment >= 2**63:
        raise UsageError("all sizes together exceed 2**63 - 1 bytes; give sizes that could lie side by side")
    rounded = -(-np.asarray(sizes, np.int64) // alignment) * alignment
    intervals = Intervals(np.asarray(first, np.int64), np.asarray(last, np.int64) - 1, rounded)
    slot_of = search(intervals, work_limit).slot_of if work_limit else greedy(intervals)
    slot_sizes = np.zeros(int(slot_of.max(initial=-1)) + 1, np.int64)
    np.maximum.at(slot_sizes, slot_of, rounded)
    return (np.cumsum(slot_sizes) - slot_sizes)[slot_of]
