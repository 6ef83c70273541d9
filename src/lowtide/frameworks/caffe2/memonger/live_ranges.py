"""From when to when blobs hold something, as memonger says it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lowtide.core.errors import UsageError
from lowtide.frameworks.caffe2.nets.named import named_ops
from lowtide.frameworks.caffe2.proto.netdef import NetDef
from lowtide.frameworks.caffe2.sharing import NamedNet, blob_ranges


class LiveRange(NamedTuple):
    """The ops that define and use a blob first and last, by position, and its bytes; None where nobody does."""

    defined: int | None
    used: int | None
    size: int | None


Slot = list[tuple[str, LiveRange]]
"""Blobs of one slot, one after the other."""


def compute_ranges(linearized_ops: Iterable[Any], blob_sizes: Mapping[str, int] | None = None) -> dict[str, LiveRange]:
    """Return the range of every blob that an op touches, in the order of first touches.

    Mended as `share.blob_ranges` is: a blob that is read before it is written has no definition, one that is written
    after its last read has no last use. Raises UsageError for a blob whose size is not among `blob_sizes`.
    """
    net = NamedNet(ops=named_ops(NetDef(op=linearized_ops)), sizes=_sizes(blob_sizes))
    return ranges_of(net, blob_sizes)


def ranges_of(net: NamedNet, blob_sizes: Mapping[str, int] | None) -> dict[str, LiveRange]:
    """Return `compute_ranges` of a net that is known by names already."""
    if blob_sizes:
        missing = [blob for blob in net.blobs if blob not in blob_sizes]
        if missing:
            raise UsageError(f"there is no size of blob {missing[0]!r}; give one of every blob, or none at all")
    return {blob.name: LiveRange(blob.defined, blob.used, blob.size) for blob in blob_ranges(net)}


def _sizes(blob_sizes: Mapping[str, int] | None) -> dict[str, int]:
    return {blob: int(size) for blob, size in (blob_sizes or {}).items()}


def is_compatible(candidate_range: LiveRange, assignment: Sequence[Any], static_blobs: Collection[str]) -> bool:
    """Whether a blob may follow the last one of a slot."""
    name, last = assignment[-1]
    if name in static_blobs or candidate_range.defined is None or last.defined is None or last.used is None:
        return False
    return candidate_range.defined > last.used


def get_updated_ranges(ranges: Iterable[tuple[str, LiveRange]], max_live: int | None = None) -> Slot:
    """Return ranges with nothing unknown: defined at -1, used at `max_live` or behind all others, of size 1."""
    known = list(ranges)
    if max_live is None:
        moments = [moment for _, blob in known for moment in blob[:2] if moment is not None]
        max_live = max(moments, default=-1) + 1
    return [
        (
            name,
            LiveRange(
                -1 if blob.defined is None else blob.defined,
                max_live if blob.used is None else blob.used,
                1 if blob.size is None else blob.size,
            ),
        )
        for name, blob in known
    ]
