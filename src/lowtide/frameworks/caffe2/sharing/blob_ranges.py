"""From when to when blobs hold something, in a net whose ops run in their order."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import Place
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet, is_size


@dataclass(frozen=True, slots=True)
class BlobRange:
    """One blob, from the op that defines it to the op that uses it last, both included; None stands for unknown.

    Raises UsageError for an impossible size.
    """

    name: str
    defined: Place | None
    """None: it is there from the start."""
    used: Place | None
    """None: nothing in the net uses it, so that it stays to the end."""
    size: int | None = None
    """In bytes; None counts as 1."""

    def __post_init__(self) -> None:
        if self.size is not None and not is_size(self.size):
            raise UsageError(f"blob {self.name!r}: size {self.size!r} is out of range; give bytes from 0 to 2**62 - 1")

    @property
    def begins(self) -> Place:
        """The first op during which the blob is live, -1 where it is there from the start."""
        return -1 if self.defined is None else self.defined


def blob_ranges(net: NamedNet) -> list[BlobRange]:
    """Return the range of every blob that an op touches, in the order of first touches. O(n + e).

    Source: Caffe2 memonger, compute_ranges. Mended: there only first write and last read count; here a blob that is
    read before it is written lives from the start, and one that is written after its last read lives to the end.
    """
    defined: dict[str, Place | None] = {}
    used: dict[str, Place | None] = {}
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
    """Return the ranges sorted by last use, with all that is unknown in them settled.

    Ranges never used come last and end after all others. Ranges never defined are defined at -1; unknown sizes are 1.
    Equal ones keep their order.
    """
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
