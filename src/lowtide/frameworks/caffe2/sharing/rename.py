"""Blobs under new names, in a net and in the step nets inside it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lowtide.frameworks.caffe2.sharing.named_net import NamedNet, NamedOp


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Bytes of all blobs that a net's ops touch; a blob of unknown size counts one."""

    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedNet:
    """A net in which blobs share storage."""

    net: NamedNet
    renames: Mapping[str, str]
    """The blobs that share, each with the name of its slot, in the order of first touches."""
    statistics: Statistics


def rename_blobs(net: NamedNet, renames: Mapping[str, str]) -> NamedNet:
    """Return the net with blobs renamed; blobs that get one name share their storage, as large as the largest of them.

    Step nets are renamed inside, external names included, and a recurrent op records which of its blobs were renamed.
    Whether the renamed net still computes the same is for `verify_equality` to say.
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
    """Return a net with its blobs renamed and what that saves."""
    ordered = {blob: renames[blob] for blob in net.blobs if blob in renames}
    return SharedNet(net=rename_blobs(net, ordered), renames=ordered, statistics=sharing_statistics(net, ordered))


def sharing_statistics(net: NamedNet, renames: Mapping[str, str]) -> Statistics:
    """Return the bytes of all blobs, and of all slots where blobs of one new name share one."""
    largest: dict[str, int] = {}
    for blob in net.blobs:
        slot = renames.get(blob, blob)
        largest[slot] = max(largest.get(slot, 0), net.size_of(blob))
    return Statistics(bytes_before=sum(map(net.size_of, net.blobs)), bytes_after=sum(largest.values()))


def blobs_by_name(renames: Mapping[str, str]) -> dict[str, list[str]]:
    """Return for every new name the blobs that get it."""
    result: dict[str, list[str]] = {}
    for blob, name in renames.items():
        result.setdefault(name, []).append(blob)
    return result


def members_of(slots: Iterable[Iterable[str]], renames: Mapping[str, str]) -> list[list[str]]:
    """Return slots of new names as slots of the blobs that got those names; other new names are slots of their own."""
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
