"""Exact search over all orders and any number of recomputed runs."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.analysis.lower_bounds import with_callee_floors
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Lifetime
from lowtide.engine.graph.execution import ABSENT, counted_sizes, may_run_twice, program_versions, usable_pairs
from lowtide.engine.recompute.program import Ints, OrderedProgram
from lowtide.engine.recompute.unrolled import first_runs

_Item = tuple[BufferId, int]
_Row = tuple[list[int], list[int], list[int], list[int], list[int], list[tuple[int, int, int]], int, float, bool]


class _End(IntEnum):
    FOUND = 0
    IMPOSSIBLE = 1
    STOPPED = 2


@dataclass(frozen=True, slots=True, eq=False)
class ExactResult:
    """The result of searching all sequences of runs."""

    runs: Ints | None = None
    """Cheapest within the budget, or of the lowest peak found."""
    cost_bound: float = 0.0
    """Lower bound, infinite if no plan fits."""
    peak_bound: int = 0
    is_exact: bool = False
    """Whether the runs are proven cheapest or, if none fits, lowest."""


def search_exactly(
    problem: Problem,
    cost: NDArray[np.float64],
    budget_bytes: int,
    known_peak: int,
    *,
    space: SpaceId = 0,
    order: Order | None = None,
    max_work: int,
) -> ExactResult:
    """Return the cheapest runs within a budget, with any recomputation, in all orders or in `order`.

    A* over sets of executed ops and resident buffers (Hart, Nilsson and Raphael 1968), pruned as in
    `native/kernels/recompute/states.hpp`. If no runs fit, returns those of lowest peak. Exact unless it stops after
    `max_work` successors and frees per budget; bounds always hold. Returns nothing for graphs above the native limits,
    and no bounds if callees may need less than in the problem. Exponential in the number of ops.
    """
    if problem.graph.n_ops > _native.MOST_STATE_OPS:
        return ExactResult()
    states = _States(problem, cost, space, order)
    if len(states.items) > _native.MOST_STATE_ITEMS:
        return ExactResult()
    end, runs, bound = states.search(budget_bytes, max_work)
    if not np.array_equal(with_callee_floors(problem).transient, problem.transient):
        return ExactResult(runs if end == _End.FOUND else None)
    if end != _End.IMPOSSIBLE:
        return ExactResult(runs if end == _End.FOUND else None, bound, is_exact=end == _End.FOUND)
    impossible, possible, least = budget_bytes, known_peak, None
    while end != _End.STOPPED and possible - impossible > 1:
        middle = (impossible + possible) // 2
        end, runs, _ = states.search(middle, max_work)
        if end == _End.IMPOSSIBLE:
            impossible = middle
        elif end == _End.FOUND:
            least = runs
            possible = OrderedProgram(problem, first_runs(runs.tolist()), cost, space).replay(runs).peak_bytes
    is_exact = least is not None and possible - impossible == 1
    return ExactResult(least, float("inf"), impossible + 1, is_exact)


class _States:
    """Items are versions of buffers, states are sets of resident items."""

    def __init__(self, problem: Problem, cost: NDArray[np.float64], space: SpaceId, order: Order | None) -> None:
        graph = problem.graph
        self.problem, self.cost, self.space, self.order = problem, cost, space, order
        self._versions = versions = program_versions(graph)
        self._counted = counted_sizes(graph, space)
        written = np.zeros(graph.n_buffers, np.bool_)
        written[graph.writes.values] = written[graph.mutates.values] = True
        self._stays = graph.exists_at_start & graph.exists_at_end & ~written
        """Buffers that are always resident unchanged and need no item."""
        self._again = may_run_twice(graph).tolist()
        self._at_end: list[_Item] = [
            (buffer, versions.final[buffer])
            for buffer in np.flatnonzero(graph.exists_at_end & ~self._stays).tolist()
            if versions.final[buffer] != ABSENT
        ]
        needed = [item for op in range(graph.n_ops) for item in self._needs(op)]
        self.items = list(dict.fromkeys(needed + self._at_end))
        self._of_buffer: dict[BufferId, list[_Item]] = {}
        for item in self.items:
            self._of_buffer.setdefault(item[0], []).append(item)
        self._before = list(graph.structure.predecessors)
        if order is not None:
            for place, op in enumerate(order.tolist()):
                self._before[op] = order[:place].tolist()

    def search(self, budget: int, max_work: int) -> tuple[int, Ints, float]:
        graph, number = self.problem.graph, {item: index for index, item in enumerate(self.items)}
        there = graph.exists_at_start
        end, runs, bound, _, _ = _native.search_states(
            [int(self._counted[buffer]) for buffer, _ in self.items],
            [bool(graph.lifetimes[buffer] >= Lifetime.DONATED) for buffer, _ in self.items],
            [self._row(op, number) for op in range(graph.n_ops)],
            [number[buffer, 0] for buffer in np.flatnonzero(there).tolist() if (buffer, 0) in number],
            [number[item] for item in self._at_end],
            int(self._counted[there].sum()),
            int(self._counted[self._stays].sum()),
            budget,
            max_work,
        )
        return end, runs, bound

    def _row(self, op: OpId, number: dict[_Item, int]) -> _Row:
        versions = self._versions
        writes = range(versions.writes_from[op], versions.first[op + 1])
        written = [(versions.buffers[access], versions.seen[access] + 1) for access in writes]
        remains = [item for item in written if item in number]
        own = versions.allocated_by(op)
        touched = [item for buffer, _ in written for item in self._of_buffer.get(buffer, [])]
        return (
            self._before[op],
            [number[item] for item in self._needs(op)],
            [number[item] for item in remains],
            [number[item] for item in touched if item not in written],
            [number[item] for buffer in own for item in self._of_buffer.get(buffer, [])],
            [
                (
                    number[read],
                    taker,
                    next((number[left] for left in written if left[0] == read[0] and left in number), -1),
                )
                for read, taker in self._pairs(op)
            ],
            int(self._counted[own].sum()) + int(self.problem.transient[op, self.space]),
            float(self.cost[op]),
            self._again[op],
        )

    def _needs(self, op: OpId) -> list[_Item]:
        versions = self._versions
        seen = [(versions.buffers[at], versions.seen[at]) for at in range(versions.first[op], versions.first[op + 1])]
        return [item for item in dict.fromkeys(seen) if item[1] != ABSENT and not self._stays[item[0]]]

    def _pairs(self, op: OpId) -> list[tuple[_Item, BufferId]]:
        if not self.problem.in_place:
            return []
        needs = dict(self._needs(op))
        pairs = usable_pairs(self.problem.graph, op)
        return [((read, needs[read]), taker) for read, taker in pairs if self._counted[read] > 0]
