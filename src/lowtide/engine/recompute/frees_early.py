"""A base order for recomputation: what a few ops can free goes at once, such as a gradient by its update."""

from collections.abc import Iterable

import numpy as np

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Lifetime

_MOST_OPS = 32
"""Ops that are looked at together; what takes more is no detour but another part of the program."""


def frees_early(problem: Problem, order: Order) -> Order:
    """Return an order in which buffers go as soon as a few ops, run earlier, free more than they leave behind.

    After every op, whatever still uses one of its buffers is gathered with all that this waits for. Up to 32 ops that
    together free more bytes than they leave run right away, in the given order. They wait where they would overwrite
    something, such as a weight, from which a result that is still needed could have been made again.
    Every such order is a valid one. Whether its peak is lower is for the caller to see: what it is good for is that
    little waits for the end, so that what is dropped comes back for a short time only. O(accesses * 32).
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
                    group = self._what_frees(buffer)
                    if group is None or self._left_by(group) >= 0:
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

    def _what_frees(self, buffer: BufferId) -> set[OpId] | None:
        """Return what must run before a buffer can go; None where that is nothing, too much, or not all."""
        if not self.goes[buffer] or not self.sizes[buffer] or not 0 < self.users_left[buffer] <= _MOST_OPS:
            return None
        stack = [user for user in self.users[buffer] if not self.ran[user]]
        group = set(stack)
        while stack:
            for before in self.predecessors[stack.pop()]:
                if not self.ran[before] and before not in group:
                    group.add(before)
                    stack.append(before)
            if len(group) > _MOST_OPS:
                return None
        return group

    def _left_by(self, group: set[OpId]) -> int:
        """Return by how many bytes running a group of ops raises what is live, below zero where it frees more."""
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
        """Return an op that still needs a result of something that reads what a group of ops overwrites."""
        overwritten = [buffer for op in group for buffer in self.mutates[op]]
        for reader in dict.fromkeys(op for buffer in overwritten for op in self.users[buffer]):
            for buffer in self.allocates[reader]:
                for user in self.users[buffer]:
                    if not self.ran[user] and user not in group:
                        return user
        return None

    def _all_in(self, group: set[OpId], ops: Iterable[OpId]) -> bool:
        return all(op in group or self.ran[op] for op in ops)
