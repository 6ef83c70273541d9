"""Slots by name: which blobs hold the same storage, one after the other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from lowtide.core.errors import UsageError, unknown
from lowtide.frameworks.caffe2.sharing.blob_ranges import BlobRange, settled
from lowtide.frameworks.caffe2.sharing.slot_arrays import Intervals
from lowtide.frameworks.caffe2.sharing.slot_search import FoundSlots, search

WORK_LIMIT = 5_000_000
"""How many slots the search looks at unless told otherwise: a few seconds at most where it proves nothing."""
ALGORITHMS = ("greedy", "optimal")
"""The ways to fill slots, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAssignment:
    """Blobs in slots, each slot as large as the largest of its blobs."""

    slots: tuple[tuple[BlobRange, ...], ...]
    """Per slot its blobs, one after the other; nothing about their ranges is left unknown."""
    lower_bound_bytes: int
    """No assignment of these blobs needs less."""
    optimal: bool
    """Whether no assignment of these blobs needs less than this one."""
    work: int
    """How many slots the search looked at."""

    @property
    def total_bytes(self) -> int:
        """The sum of the slots' sizes."""
        return sum(max(blob.size or 0 for blob in slot) for slot in self.slots)


def greedy_slots(ranges: Iterable[BlobRange]) -> SlotAssignment:
    """Assign slots by last use, each blob to the free slot whose size is nearest; see `slot_arrays.greedy`."""
    blobs = settled(ranges)
    return _assignment(blobs, search(_intervals(blobs), 0))


def optimal_slots(ranges: Iterable[BlobRange], *, work_limit: int = WORK_LIMIT) -> SlotAssignment:
    """Assign slots of the least total size, or the best found within `work_limit`; see `slot_search.search`.

    Takes the place of Caffe2 memonger's compute_assignments_dp. Never worse than `greedy_slots`; deterministic. Raises
    UsageError for a negative limit.
    """
    if work_limit < 0:
        raise UsageError(f"work limit {work_limit} is negative; give 0 or more slots to look at")
    blobs = settled(ranges)
    return _assignment(blobs, search(_intervals(blobs), work_limit))


def assign_slots(ranges: Iterable[BlobRange], algorithm: str, work_limit: int) -> SlotAssignment:
    """Assign slots by the algorithm of this name; raises UsageError for an unknown one."""
    if algorithm not in ALGORITHMS:
        raise UsageError(unknown("algorithm", algorithm, ALGORITHMS))
    return greedy_slots(ranges) if algorithm == "greedy" else optimal_slots(ranges, work_limit=work_limit)


def _intervals(blobs: Sequence[BlobRange]) -> Intervals:
    """Take settled ranges apart; a blob last used before it is defined is live while it is defined."""
    begins = np.fromiter((blob.begins for blob in blobs), np.int64, len(blobs))
    used = np.fromiter((blob.used or 0 for blob in blobs), np.int64, len(blobs))
    sizes = np.fromiter((blob.size or 0 for blob in blobs), np.int64, len(blobs))
    return Intervals(begins, np.maximum(begins, used), sizes)


def _assignment(blobs: Sequence[BlobRange], found: FoundSlots) -> SlotAssignment:
    slot_of: list[int] = found.slot_of.tolist()
    members = sorted(range(len(blobs)), key=lambda blob: (slot_of[blob], blobs[blob].begins))
    slots = tuple(tuple(blobs[blob] for blob in group) for _, group in groupby(members, key=lambda b: slot_of[b]))
    result = SlotAssignment(
        slots=slots, lower_bound_bytes=found.lower_bound_bytes, optimal=found.optimal, work=found.work
    )
    return replace(result, optimal=result.optimal or result.total_bytes == result.lower_bound_bytes)
