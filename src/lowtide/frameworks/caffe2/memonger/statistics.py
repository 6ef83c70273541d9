"""Bytes of blobs, before sharing and after."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from lowtide.core.errors import UsageError
from lowtide.frameworks.caffe2.memonger.assignments import get_memory_usage
from lowtide.frameworks.caffe2.memonger.live_ranges import LiveRange, Slot
from lowtide.frameworks.caffe2.shapes.tensor_type import BYTES_OF, CAFFE2_TYPES

Blobs = Mapping[str, Any]
"""Blobs by name: whatever has `nbytes`."""


class BlobStatistics(NamedTuple):
    """Bytes of all blobs, and of all slots."""

    baseline_nbytes: int
    optimized_nbytes: int


def compute_statistics(assignments: Sequence[Slot], blobs: Blobs | None = None) -> BlobStatistics:
    """Return the bytes of all blobs, and of all slots.

    Sizes are those of `blobs`, else of Caffe2's own workspace where that is loaded, else of the live ranges.
    """
    size_of = _sizes_in(blobs)
    sized = [
        [(name, LiveRange(None, None, blob.size if size_of is None else size_of(name))) for name, blob in slot]
        for slot in assignments
    ]
    return BlobStatistics(get_memory_usage([blob] for slot in sized for blob in slot), get_memory_usage(sized))


def collect_blob_sizes(net: Any, blobs: Blobs | None = None) -> dict[str, int]:
    """Return the bytes of every blob that an op of a net touches.

    They are those of `blobs`, else of Caffe2's own workspace; 0 for a blob that holds nothing. Raises UsageError where
    there is neither.
    """
    size_of = _sizes_in(blobs)
    if size_of is None:
        raise UsageError("there is no workspace to look at; give the blobs by name, with arrays: blobs={name: array}")
    return {blob: size_of(blob) for op in net.op for blob in (*op.input, *op.output)}


def _sizes_in(blobs: Blobs | None) -> Callable[[str], int] | None:
    if blobs is not None:
        return lambda name: int(blobs[name].nbytes) if name in blobs else 0
    workspace: Any = sys.modules.get("caffe2.python.workspace")
    if workspace is None:
        return None

    def size_in_workspace(name: str) -> int:
        return int(workspace.FetchBlob(name).nbytes) if workspace.HasBlob(name) else 0

    return size_in_workspace


def estimate_memory_usage(
    protos: Iterable[Any], shapes: Mapping[str, Sequence[int]], types: Mapping[str, int], devicescope: Any
) -> tuple[int, int, dict[str, int]]:
    """Return the bytes that are allocated in all, the most at once, and those by kind of op.

    Nets run one after the other, of each the ops on `devicescope`, with `Free` and `Alias` on any; what such an op
    writes is gone after it. `types` are numbers of Caffe2's TensorProto; a blob without shape or type counts 0.
    """
    live: dict[str, int] = {}
    total = highest = now = 0
    by_kind: defaultdict[str, int] = defaultdict(int)
    for op in (op for proto in protos for op in proto.op):
        if op.type in ("Free", "Alias"):
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
