"""Slots: which blobs hold the same storage, one after the other."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum

import numpy as np

from lowtide.frameworks.caffe2.memonger.live_ranges import LiveRange, Slot, get_updated_ranges
from lowtide.frameworks.caffe2.sharing import BlobRange
from lowtide.frameworks.caffe2.sharing import verify_assignments as verify_slots
from lowtide.frameworks.caffe2.sharing.slot_arrays import Intervals, greedy
from lowtide.frameworks.caffe2.sharing.slot_search import search
from lowtide.frameworks.caffe2.sharing.slots import WORK_LIMIT

_ALWAYS = 2**61


class AssignmentAlgorithm(Enum):
    """How slots are filled."""

    GREEDY = 0
    DYNAMIC_PROGRAMMING = 1


def compute_assignments(
    ranges: Mapping[str, LiveRange], static_blobs: Collection[str], algo: AssignmentAlgorithm
) -> list[Slot]:
    """Return slots for blobs; those in `static_blobs` come last, alone."""
    by_use = sorted(ranges.items(), key=lambda item: (item[1].used is None, item[1].used or 0))
    updated = get_updated_ranges(by_use)
    sharing = [blob for blob in updated if blob[0] not in static_blobs]
    assign = compute_assignments_greedy if algo == AssignmentAlgorithm.GREEDY else compute_assignments_dp
    return [*assign(sharing), *([blob] for blob in updated if blob[0] in static_blobs)]


def compute_assignments_greedy(
    ranges_sorted: Sequence[tuple[str, LiveRange]], init_assignments: Iterable[Slot] | None = None
) -> list[Slot]:
    """Put each blob, in the order given, into the compatible slot whose size is nearest, else into a new one."""
    slots = [list(slot) for slot in init_assignments or ()]
    visited = {name for slot in slots for name, _ in slot}
    blobs = [blob for blob in ranges_sorted if blob[0] not in visited]
    intervals = _intervals(slots, blobs)
    return _filled(slots, blobs, greedy(intervals, np.arange(len(intervals))).tolist())


def compute_assignments_dp(
    ranges_sorted: Sequence[tuple[str, LiveRange]],
    init_assignment: Iterable[Slot] | None = None,
    counter: list[int] | None = None,
) -> list[Slot]:
    """Return slots of the least total size, or the best found within a limit of work; see `share.slot_search`.

    Takes the place of memonger's recursion, which is exponential in time and memory. `counter` counts the calls.
    """
    if counter:
        counter[0] += 1
    slots = [list(slot) for slot in init_assignment or ()]
    blobs = list(ranges_sorted)
    return _filled(slots, blobs, search(_intervals(slots, blobs), WORK_LIMIT).slot_of.tolist())


def _intervals(slots: Sequence[Slot], blobs: Sequence[tuple[str, LiveRange]]) -> Intervals:
    """Return when blobs are live, with every slot that is there already as one blob that begins before all."""
    begins, ends, sizes = [-_ALWAYS] * len(slots), [_end(slot[-1][1]) for slot in slots], list(map(_size, slots))
    for _, blob in blobs:
        begins.append(-_ALWAYS if blob.defined is None else blob.defined)
        ends.append(_end(blob))
        sizes.append(0 if blob.size is None else int(blob.size))
    starts = np.asarray(begins, np.int64)
    return Intervals(starts, np.maximum(starts, np.asarray(ends, np.int64)), np.asarray(sizes, np.int64))


def _end(blob: LiveRange) -> int:
    return _ALWAYS if blob.used is None or blob.defined is None else blob.used


def _filled(slots: list[Slot], blobs: Sequence[tuple[str, LiveRange]], slot_of: Sequence[int]) -> list[Slot]:
    by_slot: dict[int, Slot] = {slot_of[place]: slot for place, slot in enumerate(slots)}
    placed = zip(blobs, slot_of[len(slots) :], strict=True)
    for blob, slot in sorted(placed, key=lambda item: -_ALWAYS if item[0][1].defined is None else item[0][1].defined):
        by_slot.setdefault(slot, []).append(blob)
    return [*slots, *(by_slot[slot] for slot in sorted(by_slot.keys() - slot_of[: len(slots)]))]


def _size(slot: Slot) -> int:
    return max((int(blob.size) for _, blob in slot if blob.size is not None))


def get_memory_usage(assignments: Iterable[Slot]) -> int:
    """Return the sum of the slots' sizes."""
    return sum(_size(slot) for slot in assignments)


def compute_blob_assignments(assignments: Iterable[Slot]) -> dict[str, str]:
    """Return the new name of every blob that shares: that of the last blob in its slot."""
    return {blob: slot[-1][0] for slot in assignments if len(slot) > 1 for blob, _ in slot}


def verify_assignments(assignments: Iterable[Slot]) -> None:
    """Check that no blob of a slot begins before the one in front of it was used last; raises VerificationError."""
    verify_slots([BlobRange(name, *blob) for name, blob in slot] for slot in assignments)
