"""Early release: a Free op after the last use of a blob."""

from collections.abc import Callable, Collection
from dataclasses import replace

from lowtide.frameworks.caffe2.sharing.named_net import NamedNet, NamedOp

ALIAS, FREE = "Alias", "Free"
"""Kinds of ops: another name for the same storage, and the end of it."""


def release_when_used(
    net: NamedNet, never_free: Collection[str] = (), *, selected: Callable[[str], bool] | None = None
) -> NamedNet:
    """Return the net with a Free op behind the last op that touches each blob that may be freed. O(n + e).

    A blob is freed if the net writes it before it reads it, reads it at some time, and `selected`, if given, says yes.
    External inputs and outputs, both names of an alias, blobs freed already, and those in `never_free` stay. Source:
    Caffe2 memonger, release_blobs_when_used. Mended: the original frees before a write that follows the last read.
    """
    last: dict[str, int] = {}
    produced: set[str] = set()
    read: set[str] = set()
    kept = net.externals.union(never_free)
    for position, (op, reads, writes) in enumerate(zip(net.ops, net.reads, net.writes, strict=True)):
        if op.kind in (ALIAS, FREE):
            kept = kept.union(reads, writes)
        produced.update(blob for blob in writes if blob not in read and blob not in reads)
        read.update(reads)
        last.update(dict.fromkeys((*reads, *writes), position))
    freed_at: dict[int, list[str]] = {}
    for blob, position in last.items():
        if blob in produced and blob in read and blob not in kept and (selected is None or selected(blob)):
            freed_at.setdefault(position, []).append(blob)
    ops: list[NamedOp] = []
    places: list[int] = []
    for position, op in enumerate(net.ops):
        places.append(len(ops))
        ops.append(replace(op, after=tuple(places[other] for other in op.after)))
        ops += [
            NamedOp(kind=FREE, inputs=(blob,), outputs=(blob,), device=net.devices[blob])
            for blob in freed_at.get(position, [])
        ]
    return replace(net, ops=tuple(ops))
