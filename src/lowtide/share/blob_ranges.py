"""From when to when blobs hold something, in a net whose ops run in their order."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lowtide.errors import UsageError
from lowtide.share.named_net import NamedNet, is_size


@dataclass(frozen=True, slots=True)
class BlobRange:
    """One blob, from the op that defines it to the op that uses it last, both included; None stands for unknown.

    Raises UsageError for an impossible size.
    """

    name: str
    defined: int | None
    """None: it is there from the start."""
    used: int | None
    """None: nothing in the net uses it, so that it stays to the end."""
    size: int | None = None
    """In bytes; None counts as 1."""

    def __post_init__(self) -> None:
        if self.size is not None and not is_size(self.size):
            raise UsageError(f"blob {self.name!r}: size {self.size!r} is out of range; give bytes from 0 to 2**62 - 1")

    @property
    def begins(self) -> int:
        """The first op during which the blob is live, -1 where it is there from the start."""
        return -1 if self.defined is None else self.defined


def blob_ranges(net: NamedNet) -> list[BlobRange]:
    """Return the range of every blob that an op touches, in the order of first touches. O(n + e).

    Source: Caffe2 memonger, compute_ranges. Mended: a blob that is read before it is written lives from the start, and
    one that is written after its last read lives to the end, where there only first write and last read count.
    """
    defined: dict[str, int | None] = {}
    used: dict[str, int | None] = {}
    for position, (reads, writes) in enumerate(zip(net.reads, net.writes, strict=True)):
        for blob in reads:
            defined.setdefault(blob, None)
            used[blob] = position
        for blob in writes:
            defined.setdefault(blob, position)
            if blob not in reads:
                used[blob] = None
    return [BlobRange(blob, defined[blob], used[blob], net.sizes.get(blob)) for blob in net.blobs]


def settled(ranges: Iterable[BlobRange]) -> list[BlobRange]:
    """Return the ranges by last use, nothing in them unknown: those never used come last and end after all others.

    Equal ones keep their order. Never-defined ones are defined at -1; unknown sizes are 1.
    """
    by_use = sorted(ranges, key=lambda blob: (blob.used is None, -1 if blob.used is None else blob.used))
    moments = [moment for blob in by_use for moment in (blob.used, blob.defined) if moment is not None]
    end = max(moments, default=-1) + 1
    return [
        replace(
            blob,
            defined=blob.begins,
            used=end if blob.used is None else blob.used,
            size=1 if blob.size is None else blob.size,
        )
        for blob in by_use
    ]
