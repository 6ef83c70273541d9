"""Live ranges, slots and bytes of blobs."""

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lowtide.core.errors import UsageError
from lowtide.frameworks.caffe2.nets.named import named_ops
from lowtide.frameworks.caffe2.nets.netdef import NetDef
from lowtide.frameworks.caffe2.shapes.tensor_type import BYTES_OF, CAFFE2_TYPES
from lowtide.frameworks.caffe2.sharing.named_net import BlobRange, NamedNet, blob_ranges
from lowtide.frameworks.caffe2.sharing.rename import ALIAS, FREE
from lowtide.frameworks.caffe2.sharing.slot_search import Intervals, greedy, search
from lowtide.frameworks.caffe2.sharing.slots import WORK_LIMIT
from lowtide.frameworks.caffe2.sharing.verify_sharing import verify_assignments as verify_slots

_ALWAYS = 2**61


class LiveRange(NamedTuple):
    """Definition and last use of a blob, and its bytes."""

    defined: int | None
    used: int | None
    size: int | None


Slot = list[tuple[str, LiveRange]]
Blobs = Mapping[str, Any]


def compute_ranges(linearized_ops: Iterable[Any], blob_sizes: Mapping[str, int] | None = None) -> dict[str, LiveRange]:
    """Return live ranges by blob; see `share.blob_ranges`.

    Raises UsageError if `blob_sizes` lacks a blob.
    """
    sizes = {blob: int(size) for blob, size in (blob_sizes or {}).items()}
    return ranges_of(NamedNet(ops=named_ops(NetDef(op=linearized_ops)), sizes=sizes), blob_sizes)


def ranges_of(net: NamedNet, blob_sizes: Mapping[str, int] | None) -> dict[str, LiveRange]:
    if blob_sizes:
        missing = [blob for blob in net.blobs if blob not in blob_sizes]
        if missing:
            raise UsageError(f"there is no size of blob {missing[0]!r}; give one of every blob, or none at all")
    return {blob.name: LiveRange(blob.defined, blob.used, blob.size) for blob in blob_ranges(net)}


def is_compatible(candidate_range: LiveRange, assignment: Sequence[Any], static_blobs: Collection[str]) -> bool:
    """Return whether a blob may follow the last one of a slot."""
    name, last = assignment[-1]
    if name in static_blobs or candidate_range.defined is None or last.defined is None or last.used is None:
        return False
    return candidate_range.defined > last.used


def get_updated_ranges(ranges: Iterable[tuple[str, LiveRange]], max_live: int | None = None) -> Slot:
    """Return ranges with defaults: defined at -1, used at `max_live` or last, size 1."""
    known = list(ranges)
    if max_live is None:
        moments = [moment for _, blob in known for moment in blob[:2] if moment is not None]
        max_live = max(moments, default=-1) + 1
    return [
        (name, LiveRange(_given(blob.defined, -1), _given(blob.used, max_live), _given(blob.size, 1)))
        for name, blob in known
    ]


class AssignmentAlgorithm(Enum):
    """Algorithms that fill slots."""

    GREEDY = 0
    DYNAMIC_PROGRAMMING = 1


def compute_assignments(
    ranges: Mapping[str, LiveRange], static_blobs: Collection[str], algo: AssignmentAlgorithm
) -> list[Slot]:
    """Return slots for blobs, with one slot per static blob at the end."""
    by_use = sorted(ranges.items(), key=lambda item: (item[1].used is None, item[1].used or 0))
    updated = get_updated_ranges(by_use)
    sharing = [blob for blob in updated if blob[0] not in static_blobs]
    assign = compute_assignments_greedy if algo == AssignmentAlgorithm.GREEDY else compute_assignments_dp
    return [*assign(sharing), *([blob] for blob in updated if blob[0] in static_blobs)]


def compute_assignments_greedy(
    ranges_sorted: Sequence[tuple[str, LiveRange]], init_assignments: Iterable[Slot] | None = None
) -> list[Slot]:
    """Put each blob into the free slot of nearest size, else a new one."""
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
    """Return the smallest slots found; see `slot_search.search`. `counter` counts calls."""
    if counter:
        counter[0] += 1
    slots = [list(slot) for slot in init_assignment or ()]
    blobs = list(ranges_sorted)
    return _filled(slots, blobs, search(_intervals(slots, blobs), WORK_LIMIT).slot_of.tolist())


def _intervals(slots: Sequence[Slot], blobs: Sequence[tuple[str, LiveRange]]) -> Intervals:
    begins = [-_ALWAYS] * len(slots) + [_given(blob.defined, -_ALWAYS) for _, blob in blobs]
    ends = [_end(blob) for _, blob in (*(slot[-1] for slot in slots), *blobs)]
    sizes = [*map(_size, slots), *(int(_given(blob.size, 0)) for _, blob in blobs)]
    starts = np.asarray(begins, np.int64)
    return Intervals(starts, np.maximum(starts, np.asarray(ends, np.int64)), np.asarray(sizes, np.int64))


def _given(figure: int | None, default: int) -> int:
    return default if figure is None else figure


def _end(blob: LiveRange) -> int:
    return _ALWAYS if blob.used is None or blob.defined is None else blob.used


def _filled(slots: list[Slot], blobs: Sequence[tuple[str, LiveRange]], slot_of: Sequence[int]) -> list[Slot]:
    by_slot: dict[int, Slot] = {slot_of[place]: slot for place, slot in enumerate(slots)}
    placed = zip(blobs, slot_of[len(slots) :], strict=True)
    for blob, slot in sorted(placed, key=lambda item: _given(item[0][1].defined, -_ALWAYS)):
        by_slot.setdefault(slot, []).append(blob)
    return [*slots, *(by_slot[slot] for slot in sorted(by_slot.keys() - slot_of[: len(slots)]))]


def _size(slot: Slot) -> int:
    return max((int(blob.size) for _, blob in slot if blob.size is not None))


def get_memory_usage(assignments: Iterable[Slot]) -> int:
    """Return the bytes of all slots."""
    return sum(_size(slot) for slot in assignments)


def compute_blob_assignments(assignments: Iterable[Slot]) -> dict[str, str]:
    """Return new names of sharing blobs: the last blob in their slot."""
    return {blob: slot[-1][0] for slot in assignments if len(slot) > 1 for blob, _ in slot}


def verify_assignments(assignments: Iterable[Slot]) -> None:
    """Raise VerificationError if blobs of a slot overlap."""
    verify_slots([BlobRange(name, *blob) for name, blob in slot] for slot in assignments)


class BlobStatistics(NamedTuple):
    """Bytes of all blobs, and of all slots."""

    baseline_nbytes: int
    optimized_nbytes: int


def compute_statistics(assignments: Sequence[Slot], blobs: Blobs | None = None) -> BlobStatistics:
    """Return statistics by the sizes of `blobs`, else of Caffe2's workspace, else of the live ranges."""
    size_of = _sizes_in(blobs)
    sized = [
        [(name, LiveRange(None, None, blob.size if size_of is None else size_of(name))) for name, blob in slot]
        for slot in assignments
    ]
    return BlobStatistics(get_memory_usage([blob] for slot in sized for blob in slot), get_memory_usage(sized))


def collect_blob_sizes(net: Any, blobs: Blobs | None = None) -> dict[str, int]:
    """Return bytes by blob from `blobs`, else from Caffe2's workspace; raises UsageError without either."""
    size_of = _sizes_in(blobs)
    if size_of is None:
        raise UsageError("there is no Caffe2 workspace; give arrays by blob: blobs={name: array}")
    return {blob: size_of(blob) for op in net.op for blob in (*op.input, *op.output)}


def _sizes_in(blobs: Blobs | None) -> Callable[[str], int] | None:
    if blobs is not None:
        return lambda name: int(blobs[name].nbytes) if name in blobs else 0
    workspace: Any = sys.modules.get("caffe2.python.workspace")
    if workspace is None:
        return None
    return lambda name: int(workspace.FetchBlob(name).nbytes) if workspace.HasBlob(name) else 0


def estimate_memory_usage(
    protos: Iterable[Any], shapes: Mapping[str, Sequence[int]], types: Mapping[str, int], devicescope: Any
) -> tuple[int, int, dict[str, int]]:
    """Return the bytes allocated in total, the most at once, and the bytes by kind of op on a device.

    `Free` and `Alias` ops on any device free their outputs. `types` are numbers of Caffe2's TensorProto. Blobs without
    shape or type count as 0.
    """
    live: dict[str, int] = {}
    total = highest = now = 0
    by_kind: defaultdict[str, int] = defaultdict(int)
    for op in (op for proto in protos for op in proto.op):
        if op.type in (ALIAS, FREE):
            now -= sum(live.pop(blob, 0) for blob in op.output)
        elif op.device_option == devicescope:
            for blob in op.output:
                if blob not in live:
                    live[blob] = _bytes(blob, shapes, types)
                    total += live[blob]
                    now += live[blob]
                    by_kind[op.type] += live[blob]
            highest = max(highest, now)
    return total, highest, dict(by_kind)


def _bytes(blob: str, shapes: Mapping[str, Sequence[int]], types: Mapping[str, int]) -> int:
    if blob not in shapes or types.get(blob) not in CAFFE2_TYPES:
        return 0
    return prod(int(size) for size in shapes[blob]) * BYTES_OF[CAFFE2_TYPES[types[blob]]]
