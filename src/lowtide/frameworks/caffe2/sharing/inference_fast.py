"""Sharing in one pass in program order."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from lowtide.core.index_spaces import OpId
from lowtide.frameworks.caffe2.sharing.memonger_rules import one_pass_renames
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet
from lowtide.frameworks.caffe2.sharing.rename import SharedNet, members_of, share_by
from lowtide.frameworks.caffe2.sharing.verify_sharing import differ_only_in_names, verify_equality, verify_in_place

_Span = tuple[OpId, OpId]


def share_inference_fast(net: NamedNet, never_share: Collection[str] = ()) -> SharedNet:
    """Let blobs share in one pass over a net that runs its ops in program order.

    A blob reuses the slot freed last on its device; of the inputs of one op, the first counts as last. External blobs,
    `never_share`, and unread blobs do not share. Valid slots of memonger are merged too, and the smaller result counts.
    Slots are named `__m<k>_shared`; nets with such names stay unchanged. Results are verified.

    Source: Caffe2 memonger, optimize_inference_net, which ignores later writes of a freed blob. O(n + e), and O(free
    slots) per blob if blobs are written again. Guarantees: never more bytes than a valid result of memonger.
    """
    kept = net.externals.union(never_share)
    found: list[list[list[str]]] = []
    memonger = one_pass_renames(net, kept)
    if _is_valid(net, memonger):
        found.append(members_of(_slots(share_by(net, memonger).net, kept), memonger))
    if net.sizes or not found:
        found.append(_slots(net, kept))
    shared = min((_named(net, slots) for slots in found), key=lambda found: found.statistics.bytes_after)
    verify_equality(net, shared.net)
    verify_in_place(net, shared.net)
    return shared


def _is_valid(net: NamedNet, renames: Mapping[str, str]) -> bool:
    same_devices = all(net.devices[blob] == net.devices[name] for blob, name in renames.items())
    return same_devices and differ_only_in_names(net, share_by(net, renames).net)


def _slots(net: NamedNet, kept: Collection[str]) -> list[list[str]]:
    walk = _OnePass(net, _spans(net), kept)
    for op, (reads, writes) in enumerate(zip(net.reads, net.writes, strict=True)):
        for blob in writes:
            walk.write(blob, op)
        for blob in reversed(dict.fromkeys((*reads, *writes))):
            walk.release(blob, op)
    return walk.members


def _named(net: NamedNet, slots: Sequence[Sequence[str]]) -> SharedNet:
    names = [f"__m{number}_shared" for number in range(len(slots))]
    if not set(names).isdisjoint(net.blobs):
        return share_by(net, {})
    return share_by(
        net, {blob: name for name, slot in zip(names, slots, strict=True) if len(slot) > 1 for blob in slot}
    )


def _spans(net: NamedNet) -> dict[str, list[_Span]]:
    spans: dict[str, list[_Span]] = {}
    from_outside: set[str] = set()
    read: set[str] = set()
    for op, (reads, writes) in enumerate(zip(net.reads, net.writes, strict=True)):
        read.update(reads)
        for blob in reads:
            if blob in spans:
                spans[blob][-1] = (spans[blob][-1][0], op)
            else:
                from_outside.add(blob)
        for blob in writes:
            if blob not in from_outside and blob not in reads:
                spans.setdefault(blob, []).append((op, op))
    for blob in spans.keys() - read:
        spans[blob][-1] = (spans[blob][-1][0], len(net.ops))
    return spans


class _OnePass:
    def __init__(self, net: NamedNet, spans: dict[str, list[_Span]], kept: Collection[str]) -> None:
        self._net = net
        self._spans = spans
        self._kept = kept
        self._free: dict[str | None, list[int]] = {}  # by device, last freed last
        self._later: list[list[_Span]] = []  # later spans of the blobs in each slot
        self._begins = {blob: {begin for begin, _ in found} for blob, found in spans.items()}
        self._ends = {blob: {end for _, end in found} for blob, found in spans.items()}
        self.slot_of: dict[str, int] = {}
        self.members: list[list[str]] = []

    def write(self, blob: str, op: OpId) -> None:
        if blob not in self._spans or blob in self._kept or op not in self._begins[blob]:
            return
        free = self._free.setdefault(self._net.devices[blob], [])
        if blob in self.slot_of:
            free.remove(self.slot_of[blob])
            return
        spans = self._spans[blob]
        fitting = (place for place in range(len(free) - 1, -1, -1) if _are_disjoint(spans, self._later[free[place]]))
        place = next(fitting, None)
        slot = len(self.members) if place is None else free.pop(place)
        if place is None:
            self.members.append([])
            self._later.append([])
        self.slot_of[blob] = slot
        self.members[slot].append(blob)
        self._later[slot].extend(spans[1:])

    def release(self, blob: str, op: OpId) -> None:
        if blob in self.slot_of and op in self._ends[blob]:
            self._free[self._net.devices[blob]].append(self.slot_of[blob])


def _are_disjoint(spans: Iterable[_Span], others: Iterable[_Span]) -> bool:
    return all(former[1] < latter[0] for former, latter in pairwise(sorted((*spans, *others))))
