"""The walk over a net's branches that finds free slots."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

from lowtide.core.index_spaces import OpId
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet


@dataclass(slots=True)
class _Slot:
    blobs: list[str]
    size: int
    number: int


_FreeSlot = tuple[tuple[int, str], int, _Slot]


class BranchWalk:
    """One walk; see `share_branch_safe`."""

    def __init__(
        self,
        net: NamedNet,
        heads: Collection[str],
        ops: Collection[OpId],
        shareable: Collection[str],
        before: Sequence[int],
        names: Mapping[str, str],
    ) -> None:
        self._net = net
        self._ops = sorted(set(ops))
        self._heads = list(dict.fromkeys(heads))
        self._shareable = frozenset(shareable)
        self._slots: list[_Slot] = []
        self._slot_of: dict[str, _Slot] = {}
        self._free: list[_FreeSlot] = []  # ascending by size; without sizes, the most shared first
        self._ancestors = before
        self._waited_for = 0
        for ops_before in before:
            self._waited_for |= ops_before
        self._name_of = {blob: names.get(blob, blob) for blob in net.blobs}
        self._sizes: dict[str, int] = {}
        self._devices: dict[str, str | None] = {}
        for blob, name in self._name_of.items():
            self._sizes[name] = max(self._sizes.get(name, 0), net.size_of(blob))
            self._devices.setdefault(name, net.devices[blob])
        self._touch()
        self._link()

    def _touch(self) -> None:
        self._touches: dict[str, int] = {}  # ops that touch each name, as bits
        self._first: dict[str, OpId] = {}  # the op that writes each name before any other touch
        for op, (reads, writes) in enumerate(zip(self._net.reads, self._net.writes, strict=True)):
            for blob in writes:
                if blob not in reads and self._name_of[blob] not in self._touches:
                    self._first[self._name_of[blob]] = op
            for name in dict.fromkeys(map(self._name_of.__getitem__, (*reads, *writes))):
                self._touches[name] = self._touches.get(name, 0) | 1 << op

    def _link(self) -> None:
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
        self._unread: Counter[str] = Counter()
        for blob, readers in self._readers.items():
            self._unread[self._name_of[blob]] += len(readers)

    def slots(self) -> list[list[str]]:
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
        return [slot.blobs for slot in self._slots]

    def _enter(self, op: OpId, seen: set[OpId]) -> Iterator[tuple[OpId, OpId]]:
        seen.add(op)
        for blob in self._net.writes[op]:
            if blob in self._shareable and self._first.get(self._name_of[blob]) == op:
                self._put(self._name_of[blob], op)
        for blob in self._net.reads[op]:
            if blob in self._shareable:
                name = self._name_of[blob]
                self._unread[name] -= 1
                if self._unread[name] == 0:
                    self._release(name)
        readers = [after for blob in self._net.writes[op] for after in self._readers.get(blob, []) if after > op]
        return ((op, after) for after in dict.fromkeys(readers))

    def _put(self, name: str, op: OpId) -> None:
        size, device, not_before = self._sizes[name], self._devices[name], ~self._ancestors[op]
        for place in self._by_preference(size):
            slot = self._free[place][-1]
            if self._devices[slot.blobs[0]] == device and not self._touches[slot.blobs[-1]] & not_before:
                del self._free[place]
                slot.blobs.append(name)
                slot.size = max(slot.size, size)
                self._slot_of[name] = slot
                return
        self._open(name)

    def _by_preference(self, size: int) -> Iterable[int]:
        fitting = bisect_left(self._free, size, key=lambda entry: entry[0][0]) if self._net.sizes else 0
        return chain(range(fitting, len(self._free)), range(fitting - 1, -1, -1))

    def _release(self, name: str) -> None:
        if self._touches[name] & ~self._waited_for:
            return  # no op runs after all that touch it
        slot = self._slot_of.get(name) or self._open(name)
        key = (slot.size, "") if self._net.sizes else (-len(slot.blobs), slot.blobs[0])
        insort(self._free, (key, slot.number, slot), key=itemgetter(0, 1))

    def _open(self, name: str) -> _Slot:
        slot = _Slot([name], self._sizes[name], len(self._slots))
        self._slots.append(slot)
        self._slot_of[name] = slot
        return slot
