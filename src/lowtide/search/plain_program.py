"""A problem as plain Python sees it: what running an op does to one memory space, from the definition."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide.graph import Graph, Lifetime
from lowtide.index_spaces import BufferId, OpId, SpaceId


class PlainProgram:
    """One memory space of a graph; a set of executed ops is the bits of an int."""

    def __init__(self, graph: Graph, transient: NDArray[np.int64], in_place: bool, space: SpaceId) -> None:
        """Unpack a graph; `transient` are bytes per op and space that last while the op runs, shape (ops, spaces)."""
        structure = graph.structure
        here = graph.buffer_spaces == space
        self.n_ops = graph.n_ops
        self.sizes: list[int] = np.where(here & ~graph.persistent, graph.sizes, 0).tolist()
        self.lifetimes = [Lifetime(lifetime) for lifetime in graph.lifetimes.tolist()]
        self.producers: list[int] = structure.producers.tolist()
        self.users = list(structure.users)
        self.allocates = list(structure.allocates)
        self.touches = list(structure.touches)
        self.predecessors = list(structure.predecessors)
        self.transient: list[int] = transient[:, space].tolist()
        self.pairs = [self._usable_pairs(op, flat if in_place else []) for op, flat in enumerate(graph.in_place)]

    def _usable_pairs(self, op: OpId, flat: Sequence[int]) -> list[tuple[int, int]]:
        pairs = dict.fromkeys(zip(flat[::2], flat[1::2], strict=True))
        return [
            (read, written)
            for read, written in pairs
            if self.lifetimes[read].freeable
            and self.producers[written] == op
            and self.sizes[read] == self.sizes[written] > 0
        ]

    def live_at_start(self, *, unused: bool) -> int:
        """Return the bytes of inputs; donated ones that nothing uses count only before the first op (`unused`)."""
        total = 0
        for size, lifetime, users in zip(self.sizes, self.lifetimes, self.users, strict=True):
            if lifetime == Lifetime.INPUT or (lifetime == Lifetime.DONATED and (users or unused)):
                total += size
        return total

    def at_the_edges(self) -> int:
        """Return the bytes before the first op or after the last one, whichever is more."""
        at_the_end = self.bytes_of(Lifetime.INPUT) + self.bytes_of(Lifetime.OUTPUT)
        return max(self.live_at_start(unused=True), at_the_end)

    def bytes_of(self, lifetime: Lifetime) -> int:
        """Return the bytes of all buffers of a lifetime class."""
        return sum(size for size, its in zip(self.sizes, self.lifetimes, strict=True) if its == lifetime)

    def may_run(self, op: OpId, executed: int) -> bool:
        """Whether the op may come next after a set of executed ops."""
        return not executed >> op & 1 and all(executed >> earlier & 1 for earlier in self.predecessors[op])

    def run(self, op: OpId, executed: int) -> tuple[int, int]:
        """Return the bytes that the op adds to what is live while it runs, and what it leaves behind or takes away."""
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
        return self.lifetimes[buffer].freeable and all(executed >> user & 1 for user in self.users[buffer])

    def _saved(self, op: OpId, executed: int) -> int:
        """Return the most bytes that the op can save by writing into operands that die: a maximum-weight matching."""
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

        # What a pair saves depends on the written buffer alone, so that taking the largest first is best.
        return sum(
            self.sizes[written]
            for written in sorted(takers, key=lambda written: -self.sizes[written])
            if augment(written, set())
        )
