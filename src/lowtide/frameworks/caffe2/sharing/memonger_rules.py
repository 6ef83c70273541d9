"""memonger's C++ sharing rules, exactly, valid or not."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lowtide.core.index_spaces import OpId
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet

_CPU = "cpu"


def one_pass_renames(net: NamedNet, kept: Collection[str]) -> dict[str, str]:
    """Return the first blob in the storage of each blob that memonger shares in one pass, except for `kept`.

    Of the inputs of one op, the first is reused first, as in memonger's hash set. The result may be invalid: devices,
    later writes, and readers in step nets are ignored.

    Source: Caffe2 memonger.cc, optimize_inference_net. O(n + e).
    """
    begins, ends = dict[str, OpId](), dict[str, OpId]()
    for op, named in enumerate(net.ops):
        ends.update((blob, op) for blob in named.inputs if blob in begins)
        for blob in named.outputs:
            if blob not in kept and blob not in begins:
                begins[blob] = ends[blob] = op
    storage: dict[str, str] = {}
    free: list[str] = []
    for op, named in enumerate(net.ops):
        freed = [storage.setdefault(blob, blob) for blob in named.inputs if ends.get(blob) == op]
        for blob in named.outputs:
            if free and begins.get(blob) == op:
                storage[blob] = free.pop()
        free += reversed(dict.fromkeys(freed))
    return storage


def token_renames(
    net: NamedNet, heads: Collection[str], ops: Collection[OpId], shareable: Collection[str]
) -> dict[str, str] | None:
    """Return the first blob in the storage of each blob that memonger shares across branches.

    An output reuses a freed blob if it holds all tokens of the blob's users. Returns None if memonger fails or depends
    on its hash tables. The result may be invalid: second writers, and readers outside `ops`, are ignored.

    Source: Caffe2 memonger.cc, ComputeBlobRecyclingForDag. O(n e / 64) time, O(n e / 8) bytes for tokens.
    """
    try:
        return _TokenWalk(net, list(dict.fromkeys(heads)), sorted(set(ops)), frozenset(shareable)).run()
    except _StoppedError:
        return None


class _StoppedError(Exception):
    """memonger fails."""


@dataclass(slots=True)
class _Visit:
    tokens: int
    branches: bool
    readers: Iterator[OpId]


class _TokenWalk:
    def __init__(self, net: NamedNet, heads: list[str], ops: list[OpId], shareable: frozenset[str]) -> None:
        self._net = net
        self._heads = heads
        self._shareable = shareable
        self._readers: defaultdict[str, list[OpId]] = defaultdict(list)
        self._n_waits: Counter[OpId] = Counter()
        self._devices: dict[str, str] = {}
        self._share_counts: Counter[str] = Counter()
        self._link(ops)
        self._tokens: Counter[str] = Counter()  # tokens of the ops that touched each blob, as bits
        self._deposits: Counter[OpId] = Counter()
        self._visits: Counter[OpId] = Counter()
        self._reads: Counter[str] = Counter()
        self._seen: set[OpId] = set()
        self._placed: set[str] = set()
        self._storage: dict[str, str] = {}
        self._n_tokens = 0

    def _link(self, ops: list[OpId]) -> None:
        followed = self._shareable.union(self._heads)
        written = {blob for op in ops for blob in self._net.ops[op].outputs if blob in self._shareable}
        n_writers: Counter[str] = Counter()
        for op in ops:
            for blob in self._net.ops[op].inputs:
                if blob in followed:
                    if blob not in written:
                        self._share_counts[blob] = 1
                    elif n_writers[blob]:
                        self._n_waits[op] += n_writers[blob]
                    else:
                        raise _StoppedError  # read before written
                    self._readers[blob].append(op)
            for blob in self._net.ops[op].outputs:
                n_writers[blob] += 1
                self._devices[blob] = self._net.blob_devices.get(blob) or self._net.ops[op].device or _CPU

    def run(self) -> dict[str, str]:
        for root in (op for head in self._heads for op in self._readers.get(head, ())):
            if root in self._seen or self._n_waits[root]:
                continue
            self._free: list[tuple[int, str]] = []
            visits = [self._enter(root, self._new_token())]
            while visits:
                visit = visits[-1]
                after = next(visit.readers, None)
                if after is None:
                    visits.pop()
                    continue
                self._visits[after] += 1
                if self._visits[after] == self._n_waits[after]:
                    visits.append(self._enter(after, visit.tokens | (self._new_token() if visit.branches else 0)))
                elif after not in self._seen:
                    self._deposits[after] |= visit.tokens
        firsts = dict.fromkeys(self._storage.values())
        return {first: first for first in firsts if first not in self._storage} | self._storage

    def _new_token(self) -> int:
        self._n_tokens += 1
        return 1 << self._n_tokens

    def _enter(self, op: OpId, tokens: int) -> _Visit:
        if op in self._seen:
            raise _StoppedError
        self._seen.add(op)
        tokens |= self._deposits.pop(op, 0)
        reads, writes = self._net.ops[op].inputs, self._net.ops[op].outputs
        for blob in (*reads, *writes):
            self._tokens[blob] |= tokens
            self._tokens[self._storage.get(blob, blob)] |= tokens
        freed: list[tuple[int, str]] = []
        for blob in reads:
            if blob in self._shareable:
                self._reads[blob] += 1
                if self._reads[blob] == len(self._readers[blob]):
                    first = self._storage.get(blob, blob)
                    freed.append((-self._share_counts[first], first))
        gone = {blob for _, blob in freed}
        for blob in writes:
            if blob in self._shareable and blob not in self._placed and blob not in gone:
                self._placed.add(blob)
                first = self._pop(blob, tokens)
                if first is not None:
                    self._tokens[first] |= tokens
                    self._share_counts[first] += 1
                    self._storage[blob] = first
        there = {blob for _, blob in self._free}
        for entry in freed:
            if entry[1] not in there:
                heapq.heappush(self._free, entry)
        readers = [after for blob in writes for after in self._readers.get(blob, ())]
        return _Visit(tokens, len(readers) > 1, iter(readers))

    def _pop(self, blob: str, tokens: int) -> str | None:
        if self._net.sizes:
            return self._pop_by_size(blob, tokens)
        entry = min((entry for entry in self._free if self._fits(entry[1], blob, tokens)), default=None)
        if entry is None:
            return None
        self._free.remove(entry)
        return entry[1]

    def _pop_by_size(self, blob: str, tokens: int) -> str | None:
        """Pop by position in the heap, as memonger does."""
        wanted = self._net.sizes.get(blob, 0)
        best_size, best = -1, -1
        for place, (_, first) in enumerate(self._free):
            if self._fits(first, blob, tokens):
                size = self._net.sizes.get(first, 0)
                if size >= best_size and (best_size < wanted or best_size >= size):
                    best_size, best = size, place
        return self._free.pop(best)[1] if best >= 0 else None

    def _fits(self, first: str, blob: str, tokens: int) -> bool:
        return not self._tokens[first] & ~tokens and self._device(first) == self._device(blob)

    def _device(self, blob: str) -> str:
        return self._devices.get(blob, _CPU)
