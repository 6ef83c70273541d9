"""Rename and free blobs."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from lowtide.frameworks.caffe2.sharing.named_net import NamedNet, NamedOp

ALIAS, FREE = "Alias", "Free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Bytes of all blobs. An unknown size counts as one."""

    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedNet:
    """A net with shared storage."""

    net: NamedNet
    renames: Mapping[str, str]
    statistics: Statistics


def rename_blobs(net: NamedNet, renames: Mapping[str, str]) -> NamedNet:
    """Return the net with blobs renamed, also in step nets, unchecked; see `verify_equality`.

    Recurrent ops record the renames of their blobs.
    """
    sizes: dict[str, int] = {}
    for blob, size in net.sizes.items():
        name = renames.get(blob, blob)
        sizes[name] = max(size, sizes.get(name, 0))
    return replace(
        net,
        ops=tuple(_renamed(op, renames) for op in net.ops),
        external_inputs=_all(net.external_inputs, renames),
        external_outputs=_all(net.external_outputs, renames),
        sizes=sizes,
        blob_devices={renames.get(blob, blob): device for blob, device in net.blob_devices.items()},
    )


def share_by(net: NamedNet, renames: Mapping[str, str]) -> SharedNet:
    ordered = {blob: renames[blob] for blob in net.blobs if blob in renames}
    return SharedNet(net=rename_blobs(net, ordered), renames=ordered, statistics=sharing_statistics(net, ordered))


def sharing_statistics(net: NamedNet, renames: Mapping[str, str]) -> Statistics:
    """Return the bytes of all blobs, and of all slots after renaming."""
    largest: dict[str, int] = {}
    for blob in net.blobs:
        slot = renames.get(blob, blob)
        largest[slot] = max(largest.get(slot, 0), net.size_of(blob))
    return Statistics(bytes_before=sum(map(net.size_of, net.blobs)), bytes_after=sum(largest.values()))


def blobs_by_name(renames: Mapping[str, str]) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for blob, name in renames.items():
        result.setdefault(name, []).append(blob)
    return result


def members_of(slots: Iterable[Iterable[str]], renames: Mapping[str, str]) -> list[list[str]]:
    """Return slots of new names as slots of old ones; new names in no slot get their own."""
    blobs = blobs_by_name(renames)
    found = [[blob for name in slot for blob in blobs.pop(name, (name,))] for slot in slots]
    return [*found, *blobs.values()]


def _renamed(op: NamedOp, renames: Mapping[str, str]) -> NamedOp:
    if not op.step_nets and renames.keys().isdisjoint((*op.inputs, *op.outputs)):
        return op
    record = op.renames
    if op.step_nets:
        touched = dict.fromkeys((*op.inputs, *op.outputs))
        record += tuple((blob, renames[blob]) for blob in touched if renames.get(blob, blob) != blob)
    return replace(
        op,
        inputs=_all(op.inputs, renames),
        outputs=_all(op.outputs, renames),
        step_nets=tuple(rename_blobs(step, renames) for step in op.step_nets),
        renames=record,
    )


def _all(names: tuple[str, ...], renames: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(renames.get(name, name) for name in names)


def release_when_used(
    net: NamedNet, never_free: Collection[str] = (), *, selected: Callable[[str], bool] | None = None
) -> NamedNet:
    """Return the net with a Free op after the last touch of each blob that may be freed. O(n + e).

    A blob is freed if it is written before it is read, is read, and is `selected`. External blobs, aliases, freed blobs
    and `never_free` are kept. Source: Caffe2 memonger, release_blobs_when_used, which frees before a last write.
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
