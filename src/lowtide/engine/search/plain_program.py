"""The effect of an op on one memory space, in plain Python."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.graph import Graph, Lifetime


class PlainProgram:
    """One memory space of a graph. Sets of executed ops are ints, a bit per op."""

    def __init__(self, graph: Graph, transient: NDArray[np.int64], in_place: bool, space: SpaceId) -> None:
        """`transient` is scratch bytes, shape (ops, spaces)."""
        self.graph = graph
        self.structure = graph.structure
        self.n_ops = graph.n_ops
        self.bytes_here: NDArray[np.int64] = np.where(
            (graph.buffer_spaces == space) & ~graph.persistent, graph.sizes, 0
        )
        """Bytes per buffer; 0 if persistent or in another space."""
        self._transient_here = transient[:, space]
        self._in_place = in_place

    # Made on demand: the lists of a large graph take gigabytes, and checks on arrays need none.

    @cached_property
    def sizes(self) -> list[int]:
        return self.bytes_here.tolist()

    @cached_property
    def lifetimes(self) -> list[Lifetime]:
        return [Lifetime(lifetime) for lifetime in self.graph.lifetimes.tolist()]

    @cached_property
    def producers(self) -> list[OpId]:
        return self.structure.producers.tolist()

    @cached_property
    def users(self) -> list[list[OpId]]:
        return list(self.structure.users)

    @cached_property
    def allocates(self) -> list[list[BufferId]]:
        return list(self.structure.allocates)

    @cached_property
    def touches(self) -> list[list[BufferId]]:
        return list(self.structure.touches)

    @cached_property
    def predecessors(self) -> list[list[OpId]]:
        return list(self.structure.predecessors)

    @cached_property
    def transient(self) -> list[int]:
        return self._transient_here.tolist()

    def transient_of(self, op: OpId) -> int:
        return int(self._transient_here[op])

    @cached_property
    def pairs(self) -> list[list[tuple[BufferId, BufferId]]]:
        return [self.pairs_of(op) for op in range(self.n_ops)]

    def pairs_of(self, op: OpId) -> list[tuple[BufferId, BufferId]]:
        graph, sizes = self.graph, self.bytes_here
        flat: list[int] = graph.in_place[op].tolist() if self._in_place else []
        pairs = dict.fromkeys(zip(flat[::2], flat[1::2], strict=True))
        return [
            (read, written)
            for read, written in pairs
            if graph.freeable[read]
            and self.structure.producers[written] == op
            and sizes[read] == sizes[written]
            and sizes[written] > 0
        ]

    def live_at_start(self, *, unused: bool) -> int:
        """Return the inputs' bytes; `unused` includes donated inputs without users."""
        counted = self.graph.lifetimes == Lifetime.DONATED
        if not unused:
            counted &= np.diff(self.structure.users.offsets) > 0
        return self.bytes_of(Lifetime.INPUT) + int(self.bytes_here[counted].sum())

    def at_the_edges(self) -> int:
        at_the_end = self.bytes_of(Lifetime.INPUT) + self.bytes_of(Lifetime.OUTPUT)
        return max(self.live_at_start(unused=True), at_the_end)

    def bytes_of(self, lifetime: Lifetime) -> int:
        return int(self.bytes_here[self.graph.lifetimes == lifetime].sum())

    @cached_property
    def _required_ops(self) -> list[int]:
        """Per op, the set of its predecessors."""
        return [_set_of(ops) for ops in self.predecessors]

    @cached_property
    def _required_users(self) -> list[int]:
        """Per buffer, the set of its users."""
        return [_set_of(ops) for ops in self.users]

    def may_run(self, op: OpId, executed: int) -> bool:
        return not executed >> op & 1 and not self._required_ops[op] & ~executed

    def run(self, op: OpId, executed: int) -> tuple[int, int]:
        """Return the bytes added while the op runs, and its net bytes."""
        executed |= 1 << op
        peak = self.transient[op] + sum(self.sizes[buffer] for buffer in self.allocates[op])
        net = 0
        for buffer in self.allocates[op]:
            if not self._dies(buffer, executed):
                net += self.sizes[buffer]
        for buffer in self.touches[op]:
            if self._dies(buffer, executed):
                net -= self.sizes[buffer]
        return peak - self._saved(op, executed), net

    def _dies(self, buffer: BufferId, executed: int) -> bool:
        return self.lifetimes[buffer].freeable and not self._required_users[buffer] & ~executed

    def _saved(self, op: OpId, executed: int) -> int:
        takers: dict[int, list[int]] = {}
        for read, written in self.pairs[op]:
            if self._dies(read, executed):
                takers.setdefault(written, []).append(read)
        taken_by: dict[int, int] = {}

        def augment(written: int, seen: set[int]) -> bool:
            for read in takers[written]:
                if read not in seen:
                    seen.add(read)
                    if read not in taken_by or augment(taken_by[read], seen):
                        taken_by[read] = written
                        return True
            return False

        # A pair saves the size of the written buffer, so matching the largest buffers first is optimal.
        return sum(
            self.sizes[written]
            for written in sorted(takers, key=lambda written: -self.sizes[written])
            if augment(written, set())
        )


def _set_of(ops: list[OpId]) -> int:
    return sum(1 << op for op in set(ops))
