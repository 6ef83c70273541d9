"""Branch-safe recycling: sharing that stays right when an executor runs independent branches at once."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from operator import itemgetter

from lowtide.index_spaces import OpId
from lowtide.share.dependences import ancestors
from lowtide.share.named_net import NamedNet
from lowtide.share.rename import SharedNet, share_by
from lowtide.share.verify_sharing import verify_equality, verify_in_place


@dataclass(slots=True)
class _Slot:
    """Storage that blobs hold one after the other."""

    blobs: list[str]
    size: int
    number: int


def share_branch_safe(
    net: NamedNet, heads: Collection[str], ops: Collection[OpId], shareable: Collection[str], scope: str
) -> SharedNet:
    """Let the shareable blobs of some ops take over one another's storage, whatever runs in parallel.

    The walk is depth first, from the ops that read the heads and then from all other roots. It enters an op once all
    that the op waits for was seen. A slot is free after the last reader of its blob. An output seen for the first time
    takes a free slot whose every touch comes before this op in all executions: so of two branches only the first finds
    it. Where sizes are known, it takes the smallest free slot that suffices, else the largest; without sizes, the one
    shared most. Slots are named `<scope>__m<k>_shared`, or keep the name of a blob that no op of `ops` wrote. External
    inputs and outputs, blobs that no op writes, and blobs of different devices never share. The result is verified.

    Source: Caffe2 memonger, compute_blob_recycling_for_dag. Mended: the original tells branches by tokens, which ignore
    readers outside `ops`; ancestors are exact. It enters an op that reads a head too early, stops at ops without
    inputs, and overwrites external outputs. Complexity: O(n e / 64 + n * free slots) time, n * n / 8 bytes.
    """
    written = {blob for writes in net.writes for blob in writes}
    walk = _BranchWalk(net, heads, ops, (written & set(shareable)) - net.externals)
    walk.run()
    renames: dict[str, str] = {}
    names = _free_names(net, scope)
    for slot in walk.slots:
        if len(slot.blobs) > 1:
            name = next(names) if slot.blobs[0] in walk.produced else slot.blobs[0]
            renames.update(dict.fromkeys(slot.blobs, name))
    shared = share_by(net, renames)
    verify_equality(net, shared.net)
    verify_in_place(net, shared.net)
    return shared


_FreeSlot = tuple[tuple[int, str], int, _Slot]


def _size(entry: _FreeSlot) -> int:
    return entry[0][0]


class _BranchWalk:
    def __init__(
        self, net: NamedNet, heads: Collection[str], ops: Collection[OpId], shareable: Collection[str]
    ) -> None:
        self._net = net
        self._ops = sorted(set(ops))
        self._heads = list(dict.fromkeys(heads))
        self._shareable = frozenset(shareable)
        self.slots: list[_Slot] = []
        self.produced = {blob for op in self._ops for blob in net.writes[op]}
        """What the ops of the walk write."""
        self._slot_of: dict[str, _Slot] = {}
        self._free: list[_FreeSlot] = []  # ascending; by size, or without sizes the most shared first
        self._ancestors = ancestors(net)
        self._waited_for = 0
        for before in self._ancestors:
            self._waited_for |= before
        self._touches: dict[str, int] = {}  # per blob, the ops that touch it, as bits
        self._first: dict[str, OpId] = {}  # per blob, the op that writes it before anything else touches it
        for op, (reads, writes) in enumerate(zip(net.reads, net.writes, strict=True)):
            for blob in writes:
                if blob not in reads and blob not in self._touches:
                    self._first[blob] = op
            for blob in (*reads, *writes):
                self._touches[blob] = self._touches.get(blob, 0) | 1 << op
        self._link()

    def _link(self) -> None:
        """Find for every op the later ones that read what it wrote, and what they still wait for."""
        followed = self._shareable.union(self._heads)
        self._readers: dict[str, list[OpId]] = {}
        self._waits: dict[OpId, set[OpId]] = {op: set() for op in self._ops}
        writers: dict[str, list[OpId]] = {}
        for op in self._ops:
            for blob in self._net.reads[op]:
                if blob in followed:
                    self._readers.setdefault(blob, []).append(op)
                    self._waits[op].update(writers.get(blob, []))
            for blob in self._net.writes[op]:
                writers.setdefault(blob, []).append(op)
        self._unread = {blob: len(readers) for blob, readers in self._readers.items()}

    def run(self) -> None:
        seen: set[OpId] = set()
        from_heads = (op for head in self._heads for op in self._readers.get(head, []))
        for root in (*from_heads, *self._ops):
            if root in seen or self._waits[root]:
                continue
            branches = [self._enter(root, seen)]
            while branches:
                before, after = next(branches[-1], (-1, -1))
                if before < 0:
                    branches.pop()
                    continue
                self._waits[after].discard(before)
                if not self._waits[after] and after not in seen:
                    branches.append(self._enter(after, seen))

    def _enter(self, op: OpId, seen: set[OpId]) -> Iterator[tuple[OpId, OpId]]:
        """Place the outputs of an op, free what it is the last to read, and return the ways on from it."""
        seen.add(op)
        for blob in self._net.writes[op]:
            if blob in self._shareable and self._first.get(blob) == op:
                self._put(blob, op)
        for blob in self._net.reads[op]:
            if blob in self._shareable:
                self._unread[blob] -= 1
                if self._unread[blob] == 0:
                    self._release(blob)
        readers = [after for blob in self._net.writes[op] for after in self._readers.get(blob, []) if after > op]
        return ((op, after) for after in dict.fromkeys(readers))

    def _put(self, blob: str, op: OpId) -> None:
        """Take the best free slot for a blob that an op defines, or a new one."""
        size, device, not_before = self._net.size_of(blob), self._net.devices[blob], ~self._ancestors[op]
        for place in self._by_preference(size):
            slot = self._free[place][-1]
            if self._net.devices[slot.blobs[0]] == device and not self._touches[slot.blobs[-1]] & not_before:
                del self._free[place]
                slot.blobs.append(blob)
                slot.size = max(slot.size, size)
                self._slot_of[blob] = slot
                return
        self._open(blob)

    def _by_preference(self, size: int) -> Iterable[int]:
        """Places in the list of free slots: the smallest that suffices first, then the largest of the others."""
        fitting = bisect_left(self._free, size, key=_size) if self._net.sizes else 0
        return chain(range(fitting, len(self._free)), range(fitting - 1, -1, -1))

    def _release(self, blob: str) -> None:
        if self._touches[blob] & ~self._waited_for:
            return  # nothing comes after all that touch it
        slot = self._slot_of.get(blob) or self._open(blob)
        key = (slot.size, "") if self._net.sizes else (-len(slot.blobs), slot.blobs[0])
        insort(self._free, (key, slot.number, slot), key=itemgetter(0, 1))

    def _open(self, blob: str) -> _Slot:
        slot = _Slot([blob], self._net.size_of(blob), len(self.slots))
        self.slots.append(slot)
        self._slot_of[blob] = slot
        return slot


def _free_names(net: NamedNet, scope: str) -> Iterator[str]:
    taken = {*net.blobs, *net.inner_reads, *net.inner_writes, *net.external_outputs}
    return (name for name in (f"{scope}__m{number}_shared" for number in count()) if name not in taken)
