"""Base orders that suit recomputation."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from lowtide.core.effort import SearchEffort
from lowtide.core.index_spaces import BufferId, OpId, Place
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.recompute.program import Drops, OrderedProgram
from lowtide.engine.search import solve

_MAX_OPS = 32


def frees_early(problem: Problem, order: Order) -> Order:
    """Return an order in which small groups of ops run early if that frees bytes. O(accesses * 32).

    A group is a buffer's remaining users and their predecessors. It never overwrites an operand of a result that may be
    recomputed. The peak may rise, but fewer buffers stay to the end.
    """
    return _EarlyFrees(problem).of(order)


class _EarlyFrees:
    def __init__(self, problem: Problem) -> None:
        graph, structure = problem.graph, problem.graph.structure
        self.touches: list[list[BufferId]] = list(structure.touches)
        self.allocates: list[list[BufferId]] = list(structure.allocates)
        self.users: list[list[OpId]] = list(structure.users)
        self.predecessors: list[list[OpId]] = list(structure.predecessors)
        self.mutates: list[list[BufferId]] = list(graph.mutates)
        self.sizes: list[int] = graph.sizes.tolist()
        self.goes: list[bool] = (graph.freeable & (graph.lifetimes != Lifetime.OUTPUT)).tolist()
        self.ran = [False] * graph.n_ops
        self.users_left = [len(users) for users in self.users]
        self.place = [0] * graph.n_ops
        self.order: list[OpId] = []

    def of(self, order: Order) -> Order:
        given: list[OpId] = order.tolist()
        for place, op in enumerate(given):
            self.place[op] = place
        waiting: dict[OpId, list[BufferId]] = {}
        for op in given:
            recent = [] if self.ran[op] else [op]
            if recent:
                self._run(op)
            while recent:
                ran = recent.pop()
                for buffer in dict.fromkeys(self.touches[ran] + self.allocates[ran] + waiting.pop(ran, [])):
                    group = self._freeing_group(buffer)
                    if group is None or self._bytes_added(group) >= 0:
                        continue
                    blocker = self._blocker(group)
                    if blocker is not None:
                        waiting.setdefault(blocker, []).append(buffer)
                        continue
                    for member in sorted(group, key=self.place.__getitem__):
                        self._run(member)
                        recent.append(member)
        return np.asarray(self.order, np.int32)

    def _run(self, op: OpId) -> None:
        self.ran[op] = True
        self.order.append(op)
        for buffer in self.touches[op]:
            self.users_left[buffer] -= 1

    def _freeing_group(self, buffer: BufferId) -> set[OpId] | None:
        if not self.goes[buffer] or not self.sizes[buffer] or not 0 < self.users_left[buffer] <= _MAX_OPS:
            return None
        stack = [user for user in self.users[buffer] if not self.ran[user]]
        group = set(stack)
        while stack:
            for before in self.predecessors[stack.pop()]:
                if not self.ran[before] and before not in group:
                    group.add(before)
                    stack.append(before)
            if len(group) > _MAX_OPS:
                return None
        return group

    def _bytes_added(self, group: set[OpId]) -> int:
        left, uses, made = 0, dict[BufferId, int](), set[BufferId]()
        for op in group:
            for buffer in self.allocates[op]:
                made.add(buffer)
                if not self.goes[buffer] or not self._all_in(group, self.users[buffer]):
                    left += self.sizes[buffer]
            for buffer in self.touches[op]:
                uses[buffer] = uses.get(buffer, 0) + 1
        for buffer, count in uses.items():
            if buffer not in made and self.goes[buffer] and self.users_left[buffer] == count:
                left -= self.sizes[buffer]
        return left

    def _blocker(self, group: set[OpId]) -> OpId | None:
        overwritten = [buffer for op in group for buffer in self.mutates[op]]
        for reader in dict.fromkeys(op for buffer in overwritten for op in self.users[buffer]):
            for buffer in self.allocates[reader]:
                for user in self.users[buffer]:
                    if not self.ran[user] and user not in group:
                        return user
        return None

    def _all_in(self, group: set[OpId], ops: Iterable[OpId]) -> bool:
        return all(op in group or self.ran[op] for op in ops)


def lower_sections(program: OrderedProgram, budget: int, effort: SearchEffort) -> Order:
    """Return the base order with every section above a budget in its order of lowest peak.

    Sections, because an order of lowest peak may exceed the budget where another would not. None needs more than
    before. Deterministic. One search per section.
    """
    order = program.order
    live = program.execute(Drops()).live
    ends = _cuts_between_rises(live, budget)
    sections = _Sections(program.problem, order)
    found = [
        sections.reordered(start, end, effort) if (live[start:end] > budget).any() else order[start:end]
        for start, end in pairwise([0, *ends, len(order)])
    ]
    return np.concatenate(found).astype(np.int32)


def _cuts_between_rises(live: NDArray[np.int64], budget: int) -> list[Place]:
    edges = np.flatnonzero(np.diff(live > budget, prepend=False, append=False))
    falls, rises = edges[1:-1:2].tolist(), edges[2::2].tolist()
    return [fall + int(live[fall:rise].argmin()) for fall, rise in zip(falls, rises, strict=True)]


class _Sections:
    def __init__(self, problem: Problem, order: Order) -> None:
        self.problem = problem
        self.order: list[OpId] = order.tolist()
        self.ops = list(problem.graph.ops())
        self.touches: list[list[BufferId]] = list(problem.graph.structure.touches)
        self.allocates: list[list[BufferId]] = list(problem.graph.structure.allocates)
        places = np.empty(len(order), np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        self.last_place: list[Place] = [
            int(places[list(users)].max(initial=-1)) for users in problem.graph.structure.users
        ]

    def reordered(self, start: Place, end: Place, effort: SearchEffort) -> Order:
        inner = Problem(self.graph_of(start, end), in_place=self.problem.in_place)
        solution = solve(inner, [inner.given_order()], effort)
        return np.asarray(self.order[start:end], np.int32)[solution.order]

    def graph_of(self, start: Place, end: Place) -> Graph:
        """Return a section's graph. Outside buffers exist at its start, buffers used later at its end."""
        graph, inside = self.problem.graph, self.order[start:end]
        builder = GraphBuilder(graph.name)
        for space in graph.spaces:
            builder.add_space(space.name)
        made = {buffer for op in inside for buffer in self.allocates[op]}
        known: dict[BufferId, BufferId] = {}
        for buffer in dict.fromkeys(each for op in inside for each in (*self.touches[op], *self.allocates[op])):
            lifetime = self._lifetime(buffer, buffer in made, self.last_place[buffer] >= end)
            name, size = graph.buffer_names[buffer], int(graph.sizes[buffer])
            known[buffer] = builder.add_buffer(name, size, lifetime, space=int(graph.buffer_spaces[buffer]))
        position = {op: place for place, op in enumerate(inside)}
        for op in inside:
            record = self.ops[op]
            builder.add(
                replace(
                    record,
                    reads=tuple(known[buffer] for buffer in record.reads),
                    writes=tuple(known[buffer] for buffer in record.writes),
                    mutates=tuple(known[buffer] for buffer in record.mutates),
                    after=tuple(position[earlier] for earlier in record.after if earlier in position),
                    in_place=tuple((known[read], known[written]) for read, written in record.in_place),
                    scratch_bytes=int(self.problem.transient[op, graph.scratch_spaces[op]]),
                    callees=(),
                )
            )
        return builder.build()

    def _lifetime(self, buffer: BufferId, is_made_here: bool, is_used_later: bool) -> Lifetime:
        lifetime = Lifetime(int(self.problem.graph.lifetimes[buffer]))
        if lifetime.persistent:
            return lifetime
        stays = is_used_later or lifetime in (Lifetime.INPUT, Lifetime.OUTPUT)
        if is_made_here:
            return Lifetime.OUTPUT if stays else Lifetime.INTERMEDIATE
        return Lifetime.INPUT if stays else Lifetime.DONATED
