"""The oracle that runs plans: every buffer is a real array, so that a plan which does something else computes it, too.

An op's results are a 64-bit mix of the op, the place in the result and everything it touches. Storage is poisoned when
it is freed and before it is written, copies are real copies, mutations and in-place pairs overwrite real storage, and
an op that is not pure draws from a state that moves on. Nothing is checked on the way: a wrong plan runs to its end
with wrong contents, and what it leaves behind differs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.graph import Graph
from lowtide.engine.plan import Address, CopyIn, CopyOut, Free, Plan, Run
from tests.oracles.records import buffer_of, op_of

Words = NDArray[np.uint64]
POISON = np.uint64(0xDEADBEEFDEADBEEF)
_MOST_WORDS = 16
_MOST_ARENA_WORDS = 2**24


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind."""

    contents: dict[int, tuple[int, ...]]
    """The words of every buffer that must be there at the end, by buffer."""
    stream: int
    """A digest of what ordered ops saw, in the order in which they first ran."""
    draws: int
    """A digest of what impure ops saw whenever they ran, in any order."""
    ran: tuple[int, ...]
    """The ops that ran at all."""


def replay(graph: Graph, plan: Plan, *, at_addresses: bool = False) -> Outcome:
    """Run a plan and return what it leaves behind. A buffer is an array of its own with at most 16 words, or, with
    `at_addresses`, as many words as it has bytes at its address in one array per memory space."""
    machine = _Machine(graph, plan.addresses if at_addresses else None)
    for number, step in enumerate(plan.steps()):
        match step:
            case Run(op, pairs):
                machine.run(number, op, pairs)
            case Free(buffer, space):
                machine.free(buffer, buffer_of(graph, buffer).space if space is None else space)
            case CopyOut(buffer, space):
                machine.copy(number, buffer, buffer_of(graph, buffer).space, space)
            case CopyIn(buffer, space):
                machine.copy(number, buffer, space, buffer_of(graph, buffer).space)
    return machine.outcome()


class _Machine:
    def __init__(self, graph: Graph, addresses: Iterable[Address] | None) -> None:
        self._graph = graph
        self._arenas: list[Words] | None = None
        if addresses is not None:
            rows = list(addresses)
            self._places = {(row.buffer, row.space, max(row.first_step, 0)): row.offset for row in rows}
            ends = [0] * len(graph.spaces)
            for row in rows:
                ends[row.space] = max(ends[row.space], row.offset + buffer_of(graph, row.buffer).size_bytes)
            assert max(ends, default=0) < _MOST_ARENA_WORDS
            self._arenas = [np.full(end, POISON) for end in ends]
        self._storage: dict[tuple[int, int], Words] = {}
        self._ran: dict[int, int] = {}
        self._stream = self._draws = np.uint64(1)
        for number in range(graph.n_buffers):
            buffer = buffer_of(graph, number)
            if buffer.lifetime.exists_at_start:
                storage = self._allocate(number, buffer.space, 0)
                storage[:] = _spread(_mix(np.uint64(number), np.uint64(7)), len(storage))

    def run(self, step: int, op: int, pairs: Iterable[tuple[int, int]]) -> None:
        record = op_of(self._graph, op)
        fresh = self._graph.structure.allocates[op].tolist()
        digest = _mix(np.uint64(op), np.uint64(13))
        for buffer in (*record.reads, *record.mutates, *(b for b in record.writes if b not in fresh)):
            digest = _mix(digest, _digest(self._contents(buffer)))
        for earlier in record.after:
            digest = _mix(digest, np.uint64(earlier in self._ran))
        if record.ordered and op not in self._ran:
            self._stream = _mix(self._stream, digest)
        if not record.pure:
            again = op in self._ran and record.repeatable
            digest = _mix(digest, np.uint64(0 if again else self._ran.get(op, 0)))
            if not again:
                self._draws ^= digest
        self._ran[op] = self._ran.get(op, 0) + 1
        for read, written in pairs:
            home = buffer_of(self._graph, read).space
            taken = self._storage.pop((read, home), None)
            if taken is not None:
                self._storage[written, home] = taken
        handed = [written for _, written in pairs]
        for place, buffer in enumerate(dict.fromkeys((*record.mutates, *record.writes))):
            home = buffer_of(self._graph, buffer).space
            if buffer in fresh and buffer not in handed:
                self.free(buffer, home)
                self._allocate(buffer, home, step)
            storage = self._contents(buffer)
            storage[:] = _spread(_mix(digest, np.uint64(place)), len(storage))

    def free(self, buffer: int, space: int) -> None:
        storage = self._storage.pop((buffer, space), None)
        if storage is not None:
            storage[:] = POISON

    def copy(self, step: int, buffer: int, source: int, target: int) -> None:
        contents = self._storage.get((buffer, source))
        storage = self._allocate(buffer, target, step)
        if contents is not None:
            storage[:] = contents

    def outcome(self) -> Outcome:
        kept = [b for b in range(self._graph.n_buffers) if not buffer_of(self._graph, b).lifetime.freeable]
        contents = {buffer: tuple(self._contents(buffer).tolist()) for buffer in kept}
        return Outcome(contents, int(self._stream), int(self._draws), tuple(sorted(self._ran)))

    def _contents(self, buffer: int) -> Words:
        """Return the storage at home; what is not there reads as poison, and writes to it are lost."""
        storage = self._storage.get((buffer, buffer_of(self._graph, buffer).space))
        return np.full(_MOST_WORDS, POISON) if storage is None else storage

    def _allocate(self, buffer: int, space: int, step: int) -> Words:
        size = buffer_of(self._graph, buffer).size_bytes
        if self._arenas is not None and (buffer, space, step) in self._places:
            offset = self._places[buffer, space, step]
            storage = self._arenas[space][offset : offset + size]
        else:
            storage = np.empty(max(1, min(size, _MOST_WORDS)) if self._arenas is None else size, np.uint64)
        storage[:] = POISON
        self._storage[buffer, space] = storage
        return storage


def _mix(one: np.uint64, two: np.uint64) -> np.uint64:
    """Mix two words into one so that every bit of either changes about half of the bits."""
    return _scramble(np.array([one]) * np.uint64(0x9E3779B97F4A7C15) + np.array([two]))[0]


def _spread(seed: np.uint64, length: int) -> Words:
    """Return contents of so many words that depend on the seed in every word."""
    return _scramble(np.arange(1, length + 1, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03) + seed)


def _digest(words: Words) -> np.uint64:
    """Return one word that depends on every word and its place."""
    places = np.arange(1, len(words) + 1, dtype=np.uint64)
    return np.bitwise_xor.reduce(_scramble(words ^ (places * np.uint64(0xA0761D6478BD642F))), initial=np.uint64(0))


def _scramble(words: Words) -> Words:
    """Apply an invertible function that carries every bit to all others: multiplications and shifts by turns."""
    for shift, factor in ((32, 0xE9846AF9B1A615D), (32, 0xE9846AF9B1A615D), (28, 1)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words
