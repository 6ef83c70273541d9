"""Random correct plans that do everything a plan may do, wherever it is allowed, not only where it is useful."""

from random import Random

from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import ABSENT, Versions, program_versions
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run, Step
from tests.oracles.records import buffer_of, op_of


def random_plan(graph: Graph, random: Random) -> Plan:
    """Return a plan in a random valid order that drops buffers and runs their ops again when they are needed, moves
    buffers of every lifetime class to other memory spaces and back, takes in-place pairs, and frees what is dead
    sooner or later. Ops are run again, in chains too, where all they need never changes and can always be had."""
    return _Writer(graph, random).write()


def random_order(graph: Graph, random: Random) -> list[int]:
    """Draw a valid order: repeatedly one of the ready ops."""
    successors = list(graph.structure.successors)
    waits = [len(earlier) for earlier in graph.structure.predecessors]
    ready = [op for op, count in enumerate(waits) if not count]
    order: list[int] = []
    while ready:
        order.append(ready.pop(random.randrange(len(ready))))
        for op in successors[order[-1]]:
            waits[op] -= 1
            if not waits[op]:
                ready.append(op)
    return order


class _Writer:
    """Writes steps while it keeps track of which version of every buffer is where."""

    def __init__(self, graph: Graph, random: Random) -> None:
        self._graph = graph
        self._random = random
        self._versions = program_versions(graph)
        self._buffers = [buffer_of(graph, buffer) for buffer in range(graph.n_buffers)]
        self._allocates, self._touches = list(graph.structure.allocates), list(graph.structure.touches)
        self._rerunnable = _rerunnable(graph, self._versions)
        self._home = {b.id: 0 for b in self._buffers if b.lifetime.exists_at_start}
        self._copies: dict[tuple[int, int], int] = {}
        self._steps: list[Step] = []
        self._left = [len(users) for users in graph.structure.users]

    def write(self) -> Plan:
        """Write the whole plan."""
        for op in random_order(self._graph, self._random):
            for buffer in self._touches[op]:
                self._left[buffer] -= 1
            self._run(op, first=True)
            for buffer in list(self._home):
                self._disturb(buffer)
        for buffer in self._buffers:
            if not buffer.lifetime.freeable:
                self._bring(buffer.id, self._versions.final[buffer.id])
        return Plan.from_steps(self._graph, self._steps)

    def _run(self, op: int, *, first: bool) -> None:
        for access in range(self._versions.first[op], self._versions.first[op + 1]):
            if self._versions.seen[access] != ABSENT:
                self._bring(self._versions.buffers[access], self._versions.seen[access])
        pairs = self._pairs(op) if first else ()
        self._steps.append(Run(op, pairs))
        for read, _ in pairs:
            del self._home[read]
        for access in range(self._versions.writes_from[op], self._versions.first[op + 1]):
            self._home[self._versions.buffers[access]] = self._versions.seen[access] + 1

    def _bring(self, buffer: int, version: int) -> None:
        """Make a buffer resident at home: it is, it has a copy elsewhere, or the op that wrote it can run again."""
        if buffer in self._home:
            return
        for space in range(len(self._graph.spaces)):
            if self._copies.get((buffer, space)) == version:
                self._steps.append(CopyIn(buffer, space))
                self._home[buffer] = version
                return
        self._run(int(self._graph.structure.producers[buffer]), first=False)

    def _pairs(self, op: int) -> tuple[tuple[int, int], ...]:
        taken: list[tuple[int, int]] = []
        changed = {*op_of(self._graph, op).mutates, *op_of(self._graph, op).writes}
        for read, written in op_of(self._graph, op).in_place:
            one, two = self._buffers[read], self._buffers[written]
            fits = one.lifetime.freeable and (one.size_bytes, one.space) == (two.size_bytes, two.space)
            fresh = written in self._allocates[op] and written not in self._home
            used = {buffer for pair in taken for buffer in pair}
            allowed = fits and fresh and read not in changed and self._can_go(read) and not used & {read, written}
            if allowed and self._random.random() < 0.5:
                taken.append((read, written))
        return tuple(taken)

    def _can_go(self, buffer: int) -> bool:
        """Say whether the copy at home may vanish: nobody needs it, or it can be had again."""
        freeable = self._buffers[buffer].lifetime.freeable
        producer = int(self._graph.structure.producers[buffer])
        if (freeable and not self._left[buffer]) or (producer >= 0 and self._rerunnable[producer]):
            return True
        return any(self._copies.get((buffer, space)) == self._home[buffer] for space in range(len(self._graph.spaces)))

    def _disturb(self, buffer: int) -> None:
        """Copy a resident buffer elsewhere, drop copies, drop the buffer itself, or leave all as it is."""
        home = self._buffers[buffer].space
        for space in range(len(self._graph.spaces)):
            if space == home or self._random.random() < 0.6:
                continue
            if (buffer, space) not in self._copies:
                self._steps.append(CopyOut(buffer, space))
                self._copies[buffer, space] = self._home[buffer]
            else:
                self._steps.append(Free(buffer, space))
                del self._copies[buffer, space]
        if self._can_go(buffer) and self._random.random() < 0.5:
            self._steps.append(Free(buffer))
            del self._home[buffer]


def _rerunnable(graph: Graph, versions: Versions) -> list[bool]:
    """Per op, whether it may run again any time: it may run twice, and what it touches is written once and at hand."""
    result: list[bool] = []
    for op, (allocates, touches) in enumerate(zip(graph.structure.allocates, graph.structure.touches, strict=True)):
        record = op_of(graph, op)
        once = all(versions.final[buffer] == 0 for buffer in (*allocates, *touches))
        sources = all(
            not buffer_of(graph, buffer).lifetime.freeable
            or (graph.structure.producers[buffer] >= 0 and result[graph.structure.producers[buffer]])
            for buffer in touches
        )
        own = not record.mutates and set(record.writes) == set(allocates)
        may = record.repeatable or (record.pure and (not record.ordered or record.ranks > 1))
        result.append(may and own and once and sources)
    return result
