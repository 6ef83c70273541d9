"""Slots for blobs that share storage in turn."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from lowtide.core.errors import UsageError, unknown
from lowtide.core.index_spaces import OpId
from lowtide.frameworks.caffe2.sharing.named_net import BlobRange, NamedNet, blob_ranges
from lowtide.frameworks.caffe2.sharing.orders import chosen_order
from lowtide.frameworks.caffe2.sharing.rename import SharedNet, share_by
from lowtide.frameworks.caffe2.sharing.slot_search import Intervals, search
from lowtide.frameworks.caffe2.sharing.verify_sharing import verify_assignments, verify_equality, verify_in_place

WORK_LIMIT = 5_000_000
"""Slots that the search visits by default; takes a few seconds."""
_ALGORITHMS = ("greedy", "optimal")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAssignment:
    """Blobs in slots, each as large as its largest blob."""

    slots: tuple[tuple[BlobRange, ...], ...]
    """In order, with complete live ranges."""
    lower_bound_bytes: int
    optimal: bool
    work: int

    @property
    def total_bytes(self) -> int:
        return sum(max(blob.size or 0 for blob in slot) for slot in self.slots)


def greedy_slots(ranges: Iterable[BlobRange]) -> SlotAssignment:
    """Assign slots by `slot_search.greedy`."""
    return _assigned(ranges, 0)


def optimal_slots(ranges: Iterable[BlobRange], *, work_limit: int = WORK_LIMIT) -> SlotAssignment:
    """Assign the smallest slots found within `work_limit`, never worse than greedy ones; see `slot_search.search`.

    Replaces Caffe2 memonger's compute_assignments_dp. Raises UsageError for a negative limit.
    """
    if work_limit < 0:
        raise UsageError(f"work limit {work_limit} is negative; give 0 or more slots to visit")
    return _assigned(ranges, work_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterferenceSharing:
    """A net with its slots."""

    ordered: NamedNet
    shared: SharedNet
    order: tuple[OpId, ...]
    """Ops of the given net; sharing is valid in this order only."""
    slots: tuple[tuple[BlobRange, ...], ...]
    """In order. Blobs that never share come last, one per slot."""
    optimal: bool
    """Whether no slots for these live ranges are smaller."""


def share_by_interference(
    net: NamedNet,
    never_share: Collection[str] = (),
    *,
    order: str | Sequence[OpId] = "topological",
    algorithm: str = "greedy",
    work_limit: int = WORK_LIMIT,
) -> InterferenceSharing:
    """Order the ops and let blobs share that are never live together in this order.

    `order` is "topological", "longest-path", "longest-path-merged" or op positions; `algorithm` is "greedy" or
    "optimal". A slot has the name of its last blob. External blobs, `never_share` and blobs of different
    devices never share. The result is verified. Raises UsageError.

    Source: Caffe2 memonger, optimize_interference, which ignores devices and second writers of a blob. O(e + n
    * slots) and the search.
    """
    if algorithm not in _ALGORITHMS:
        raise UsageError(unknown("algorithm", algorithm, _ALGORITHMS))
    places = chosen_order(net, order)
    ordered = net.reordered(places)
    excluded = ordered.externals.union(never_share)
    ranges = blob_ranges(ordered)
    assignments: list[SlotAssignment] = []
    for device in dict.fromkeys(ordered.devices[blob.name] for blob in ranges):
        sharing = [blob for blob in ranges if blob.name not in excluded and ordered.devices[blob.name] == device]
        assignments.append(
            greedy_slots(sharing) if algorithm == "greedy" else optimal_slots(sharing, work_limit=work_limit)
        )
    slots = tuple(slot for assignment in assignments for slot in assignment.slots)
    verify_assignments(slots)
    shared = share_by(ordered, {blob.name: slot[-1].name for slot in slots if len(slot) > 1 for blob in slot})
    verify_equality(ordered, shared.net)
    verify_in_place(ordered, shared.net)
    return InterferenceSharing(
        ordered=ordered,
        shared=shared,
        order=tuple(places),
        slots=slots + tuple((blob,) for blob in ranges if blob.name in excluded),
        optimal=all(assignment.optimal for assignment in assignments),
    )


def _assigned(ranges: Iterable[BlobRange], work_limit: int) -> SlotAssignment:
    blobs = _completed(ranges)
    found = search(_intervals(blobs), work_limit)
    slot_of: list[int] = found.slot_of.tolist()
    members = sorted(range(len(blobs)), key=lambda blob: (slot_of[blob], blobs[blob].begins))
    slots = tuple(tuple(blobs[blob] for blob in group) for _, group in groupby(members, key=lambda b: slot_of[b]))
    return SlotAssignment(
        slots=slots, lower_bound_bytes=found.lower_bound_bytes, optimal=found.optimal, work=found.work
    )


def _completed(ranges: Iterable[BlobRange]) -> list[BlobRange]:
    by_use = sorted(ranges, key=lambda blob: (blob.used is None, -1 if blob.used is None else blob.used))
    places = [place for blob in by_use for place in (blob.used, blob.defined) if place is not None]
    end = max(places, default=-1) + 1
    return [
        replace(
            blob,
            defined=blob.begins,
            used=end if blob.used is None else blob.used,
            size=1 if blob.size is None else blob.size,
        )
        for blob in by_use
    ]


def _intervals(blobs: Sequence[BlobRange]) -> Intervals:
    columns = np.array([(blob.begins, blob.used, blob.size) for blob in blobs], np.int64).reshape(-1, 3)
    begins, used, sizes = columns.T
    return Intervals(begins, np.maximum(begins, used), sizes)
