"""Bounds that no order can beat, with the op that sets them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import OpId, SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Graph

MOST_WORK = 200_000_000
"""Arcs that the flows of one bound may look at; a few seconds at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """The least peak any order can have in one memory space, and why."""

    space: str
    peak_bytes: int
    op: OpId | None
    """The op that cannot run with less; None when the inputs or the outputs alone need that much."""
    before: NDArray[np.bool_] | None = field(default=None, compare=False, repr=False)
    """Per op, whether it runs before that op in the case that needs least; None where there is no such op."""


class CalleeBounds:
    """The bounds of graphs that ops call, found once each, however many graphs call them.

    With n levels of graphs that each call two of the next there are 2^n ways to the last one.
    """

    def __init__(self, *, in_place: bool) -> None:
        self._in_place = in_place
        self._known: dict[int, tuple[Graph, list[LowerBound]]] = {}
        """By identity; the graph is held, so that no other takes its place."""

    def of(self, graph: Graph) -> list[LowerBound]:
        """Return a callee's own bounds, whatever its order."""
        if id(graph) not in self._known:
            problem = Problem(graph, in_place=self._in_place)
            self._known[id(graph)] = graph, lower_bounds(problem, [problem.given_order()], self)
        return self._known[id(graph)][1]


def lower_bounds(problem: Problem, orders: Iterable[Order], callees: CalleeBounds | None = None) -> list[LowerBound]:
    """Return, per memory space, the most that any single op needs while it runs, whatever the order.

    What runs before an op is closed under predecessors, holds its ancestors and none of its descendants. Live bytes
    are submodular over such sets, so the least is a minimum cut: one flow over the ops incomparable with it. The bound
    is the largest such value over all ops. Ops are tried from the worst of the given orders on. An op that needs no
    more than the bound in some known order cannot raise it, so usually one flow is enough. All inputs are there before
    the first op, all outputs after the last one. Where an op can choose among in-place pairs, the best case is assumed.
    After `MOST_WORK` arcs it stops early, with a weaker bound. `callees` are the bounds found already.
    """
    problem = with_callee_floors(problem, callees)
    profiles = [_profile_by_op(problem, order) for order in orders]
    bounds: list[LowerBound] = []
    for position, space in enumerate(problem.graph.spaces):
        bound = LowerBound(space=space.name, peak_bytes=bytes_at_the_edges(problem.graph, position), op=None)
        needed = np.minimum.reduce([profile[:, position] for profile in profiles])
        cutter = _native.ClosureCutter(problem.native, position, problem.in_place)
        work = 0
        for op in np.argsort(-needed, kind="stable").tolist():
            if needed[op] <= bound.peak_bytes or work > MOST_WORK:
                break
            least, before, spent = cutter.cut(op)
            work += spent
            if least > bound.peak_bytes:
                bound = LowerBound(space=space.name, peak_bytes=least, op=op, before=before.view(np.bool_))
        bounds.append(bound)
    return bounds


def with_callee_floors(problem: Problem, callees: CalleeBounds | None = None) -> Problem:
    """Let every callee count with its own lower bound, since another plan for it may exist."""
    callees = callees or CalleeBounds(in_place=problem.in_place)
    floors = {
        name: {bound.space: bound.peak_bytes for bound in callees.of(problem.graph.subgraphs[name])}
        for name in problem.graph.called
    }
    return replace(problem, callee_peaks=floors) if floors else problem


def _profile_by_op(problem: Problem, order: Order) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    profile = np.empty((problem.graph.n_ops, len(problem.graph.spaces)), np.int64)
    profile[order] = _native.profile(problem.native, order, problem.in_place).reshape(profile.shape)
    return profile


def bytes_at_the_edges(graph: Graph, space: SpaceId) -> int:
    """Return what a memory space holds before the first op or after the last one, whichever is more."""
    here = graph.buffer_spaces == space
    return max(int(graph.sizes[here & counted].sum()) for counted in (graph.counted_at_start, graph.counted_at_end))
