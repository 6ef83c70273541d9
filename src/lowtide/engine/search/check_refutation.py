"""Replay a log that refutes a budget."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import msgspec

from lowtide.core.index_spaces import OpId
from lowtide.engine.graph import Lifetime
from lowtide.engine.search.check_cut import least_needed
from lowtide.engine.search.plain_max_flow import INFINITE, PlainMaxFlow
from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.proof import Cycle, Either, First, Last, Line, Need, Next, Over, Previous


def is_refuted(program: PlainProgram, budget_bytes: int, log: Sequence[Line]) -> bool:
    """Return whether a log shows that no order meets a budget. One maximum flow per line.

    Each line must follow from the program and the lines in force. The log must end exactly with its last case.
    """
    replay = _Replay(program, budget_bytes)
    return all(not replay.ended and replay.apply(line) for line in log) and replay.ended


@dataclass(frozen=True, slots=True)
class _Case:
    dependencies: tuple[tuple[OpId, OpId], ...] = ()
    first: tuple[OpId, ...] = ()
    last: tuple[OpId, ...] = ()
    """From the end."""


class _Replay:
    def __init__(self, program: PlainProgram, budget_bytes: int) -> None:
        self.program = program
        self.budget_bytes = budget_bytes
        self.ended = False
        self._followers: list[list[OpId]] = [[] for _ in range(program.n_ops)]
        for op, earlier_ones in enumerate(program.predecessors):
            for earlier in earlier_ones:
                self._followers[earlier].append(op)
        self._case = _Case()
        self._others: list[_Case] = []  # open cases, the next one last

    def apply(self, line: Line) -> bool:
        case, n_ops = self._case, self.program.n_ops
        if any(op >= n_ops for op in _ops_of(line)):
            return False
        match line:
            case Need(op, earlier, later):
                follows = op in (earlier, later) and earlier != later and self._is_over(op, (later, earlier))
                self._case = replace(case, dependencies=(*case.dependencies, (earlier, later)))
            case Over(op):
                follows = self._is_over(op)
                self._open_cases([])
            case Cycle():
                follows = _has_cycle(self.program, case.dependencies)
                self._open_cases([])
            case Either(one, other):
                follows = one != other
                both = ((one, other), (other, one))
                self._open_cases([replace(case, dependencies=(*case.dependencies, each)) for each in both])
            case First(ops):
                follows = self._settle_first(ops)
            case Last(ops):
                follows = self._settle_last(ops)
            case Next(ops):
                follows = self._are_all_next(ops)
                self._open_cases([replace(case, first=(*case.first, op)) for op in ops])
            case Previous(ops):
                follows = self._are_all_last(ops)
                self._open_cases([replace(case, last=(*case.last, op)) for op in ops])
        return follows

    def _open_cases(self, cases: Sequence[_Case]) -> None:
        self._others += reversed(cases)
        self.ended = not self._others
        if self._others:
            self._case = self._others.pop()

    def _middle(self) -> set[OpId]:
        return set(range(self.program.n_ops)).difference(self._case.first, self._case.last)

    def _is_over(self, op: OpId, *more: tuple[OpId, OpId]) -> bool:
        case = self._case
        around = [(earlier, op) for earlier in case.first] + [(op, later) for later in case.last]
        dependencies = [*case.dependencies, *around, *more]
        return op in self._middle() and least_needed(self.program, op, dependencies) > self.budget_bytes

    def _may_be_next(self, among: Iterable[OpId], first: set[OpId]) -> list[OpId]:
        waiting = {later for earlier, later in self._case.dependencies if earlier not in first}
        return [op for op in among if op not in waiting and first.issuperset(self.program.predecessors[op])]

    def _may_be_last(self, among: Iterable[OpId], last: set[OpId]) -> list[OpId]:
        waited_for = {earlier for earlier, later in self._case.dependencies if later not in last}
        return [op for op in among if op not in waited_for and last.issuperset(self._followers[op])]

    def _are_all_next(self, ops: Sequence[OpId]) -> bool:
        first, middle = set(self._case.first), self._middle()
        live = live_after(self.program, first)
        others = self._may_be_next(middle.difference(ops), first)
        return bool(middle) and all(live + self._run(op, first)[0] > self.budget_bytes for op in others)

    def _are_all_last(self, ops: Sequence[OpId]) -> bool:
        last, middle = set(self._case.last), self._middle()
        left = middle.union(self._case.first)
        live = live_after(self.program, left)
        others = self._may_be_last(middle.difference(ops), last)
        runs = (self._run(op, left - {op}) for op in others)
        return bool(middle) and all(live - net + more > self.budget_bytes for more, net in runs)

    def _run(self, op: OpId, before: AbstractSet[OpId]) -> tuple[int, int]:
        return self.program.run(op, sum(1 << earlier for earlier in before))

    def _settle_first(self, ops: Sequence[OpId]) -> bool:
        first, middle = set(self._case.first), self._middle()
        live = live_after(self.program, first)
        least = least_live(self.program, first, set(ops), self._case.dependencies)
        for op in ops:
            more, net = self._run(op, first)
            if op not in middle or not self._may_be_next([op], first) or live + more > self.budget_bytes:
                return False
            live += net
            first.add(op)
            middle.remove(op)
        self._case = replace(self._case, first=(*self._case.first, *ops))
        return live == least

    def _settle_last(self, ops: Sequence[OpId]) -> bool:
        last, middle = set(self._case.last), self._middle()
        left = middle.union(self._case.first)
        live = live_after(self.program, left)
        for op in ops:
            if op not in middle or not self._may_be_last([op], last):
                return False
            left.remove(op)
            more, net = self._run(op, left)
            live -= net
            if live + more > self.budget_bytes:
                return False
            last.add(op)
            middle.remove(op)
        in_place_operands = {read for op in left for read, _ in self.program.pairs[op]}
        if any(not in_place_operands.isdisjoint(self.program.touches[op]) for op in ops):
            return False
        least = least_live(self.program, left, set(ops), self._case.dependencies)
        self._case = replace(self._case, last=(*self._case.last, *ops))
        return live == least


def _ops_of(line: Line) -> Sequence[OpId]:
    return line.ops if isinstance(line, First | Last | Next | Previous) else msgspec.structs.astuple(line)


def _has_cycle(program: PlainProgram, known: Sequence[tuple[OpId, OpId]]) -> bool:
    waiting_for: list[set[OpId]] = [set(earlier) for earlier in program.predecessors]
    for earlier, later in known:
        waiting_for[later].add(earlier)
    followers: list[list[OpId]] = [[] for _ in waiting_for]
    for later, earlier_ones in enumerate(waiting_for):
        for earlier in earlier_ones:
            followers[earlier].append(later)
    left = [len(earlier_ones) for earlier_ones in waiting_for]
    ready = [op for op, count in enumerate(left) if not count]
    for op in ready:
        for later in followers[op]:
            left[later] -= 1
            if not left[later]:
                ready.append(later)
    return len(ready) < program.n_ops


def live_after(program: PlainProgram, executed: AbstractSet[OpId]) -> int:
    return least_live(program, executed, frozenset(), ())


def least_live(
    program: PlainProgram,
    executed: AbstractSet[OpId],
    free: AbstractSet[OpId],
    dependencies: Sequence[tuple[OpId, OpId]],
) -> int:
    """Return the least live bytes after `executed` and any of the `free` ops that together are closed.

    Closed sets obey the program and `dependencies` (earlier, later). One minimum cut, with executed ops on the source
    side.
    """
    flow = PlainMaxFlow(2)
    node = {op: flow.add_node() for op in free}
    given = ((earlier, later) for later in free for earlier in program.predecessors[later])
    for earlier, later in (*given, *dependencies):
        if earlier in node and later in node:
            flow.add_edge(node[later], node[earlier], INFINITE)
    total = program.bytes_of(Lifetime.INPUT)
    for buffer, size in enumerate(program.sizes):
        producer, lifetime = program.producers[buffer], program.lifetimes[buffer]
        if size == 0 or lifetime == Lifetime.INPUT:
            continue
        if producer in node:
            start = node[producer]
        elif producer in executed or (producer < 0 and lifetime == Lifetime.DONATED):
            start = flow.SOURCE
        else:
            continue
        waiting = [user for user in program.users[buffer] if user not in executed]
        if lifetime == Lifetime.OUTPUT or any(user not in node for user in waiting):
            if start == flow.SOURCE:
                total += size
            else:
                flow.add_edge(start, flow.SINK, size)
        elif waiting:
            joint = flow.add_node()
            flow.add_edge(start, joint, size)
            for user in waiting:
                flow.add_edge(joint, node[user], INFINITE)
    return total + (flow.run() if node else 0)
