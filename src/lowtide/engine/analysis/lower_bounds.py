"""Lower bounds of the peak over all orders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.graph.execution import usable_pairs

MOST_WORK = 200_000_000
"""Work limit of one bound in flow arcs, a few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """The lower bound of the peak in one memory space."""

    space: str
    peak_bytes: int
    op: OpId | None
    """None for inputs or outputs."""
    before: NDArray[np.bool_] | None = field(default=None, compare=False, repr=False)
    """Ops before it in the best case."""


class CalleeBounds:
    """Bounds of callees, each computed once."""

    def __init__(self, *, in_place: bool) -> None:
        self._in_place = in_place
        self._known: dict[int, tuple[Graph, list[LowerBound]]] = {}

    def of(self, graph: Graph) -> list[LowerBound]:
        if id(graph) not in self._known:
            problem = Problem(graph, in_place=self._in_place)
            self._known[id(graph)] = graph, lower_bounds(problem, [problem.given_order()], self)
        return self._known[id(graph)][1]


def lower_bounds(problem: Problem, orders: Iterable[Order], callees: CalleeBounds | None = None) -> list[LowerBound]:
    """Return, per memory space, the most bytes that a single op needs in every order.

    Live bytes are submodular over sets of ops closed under predecessors, so their minimum is a minimum cut. Stops after
    `MOST_WORK` arcs with a weaker bound.
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
    """Return the problem with lower bounds as the peaks of callees."""
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
    """Return the live bytes before the first or after the last op, the larger."""
    return int(graph.sizes[_live_at_the_edges(graph, space)].sum())


def _live_at_the_edges(graph: Graph, space: SpaceId) -> NDArray[np.bool_]:
    here = graph.buffer_spaces == space
    edges = (here & graph.counted_at_start, here & graph.counted_at_end)
    return max(edges, key=lambda live: int(graph.sizes[live].sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundHolder:
    """A buffer live at the lower bound."""

    space: str
    name: str
    size_bytes: int
    lifetime: str = "scratch"
    kind: str | None = None
    made_at: str | None = None
    """Place of its op in the user's program."""


def bound_holders(problem: Problem, bounds: Sequence[LowerBound]) -> list[BoundHolder]:
    """Return the tensors live at the bounds, largest first. O(n + e) per space.

    They add up to the bound. Outputs that take over an operand's storage are excluded.
    """
    problem = with_callee_floors(problem)
    graph = problem.graph
    holders: list[BoundHolder] = []
    for position, bound in enumerate(bounds):
        if bound.op is None or bound.before is None:
            held = _live_at_the_edges(graph, position)
        else:
            held = _at_op(problem, bound.op, bound.before)
        held = held & (graph.buffer_spaces == position) & (graph.sizes > 0)
        rows = [holder_of(graph, bound.space, buffer) for buffer in np.flatnonzero(held).tolist()]
        if bound.op is not None and problem.transient[bound.op, position] > 0:
            rows.append(
                BoundHolder(
                    space=bound.space,
                    name=f"scratch of {graph.op_names[bound.op]}",
                    size_bytes=int(problem.transient[bound.op, position]),
                    made_at=graph.sources[bound.op],
                )
            )
        holders += sorted(rows, key=lambda row: -row.size_bytes)
    return holders


def holder_of(graph: Graph, space: str, buffer: BufferId) -> BoundHolder:
    maker = int(graph.structure.producers[buffer])
    return BoundHolder(
        space=space,
        name=graph.buffer_names[buffer],
        size_bytes=int(graph.sizes[buffer]),
        lifetime=Lifetime(int(graph.lifetimes[buffer])).name.lower(),
        kind=graph.op_kinds[maker] if maker >= 0 else None,
        made_at=graph.sources[maker] if maker >= 0 else None,
    )


def _at_op(problem: Problem, op: OpId, ran: NDArray[np.bool_]) -> NDArray[np.bool_]:
    graph, structure = problem.graph, problem.graph.structure
    exists = (structure.producers >= 0) & ran[structure.producers]
    exists |= (structure.producers < 0) & (graph.lifetimes == Lifetime.DONATED)
    needed = np.zeros(graph.n_buffers, np.bool_)
    needed[structure.users.owners()[~ran[structure.users.values]]] = True
    held = (graph.lifetimes == Lifetime.INPUT) | (exists & (graph.lifetimes == Lifetime.OUTPUT))
    held |= exists & needed & ~graph.persistent
    fresh = structure.allocates[op]
    held[fresh] = True
    if problem.in_place:
        held[[written for written in fresh.tolist() if _is_taken_over(graph, op, written, ran)]] = False
    return held


def _is_taken_over(graph: Graph, op: OpId, written: BufferId, ran: NDArray[np.bool_]) -> bool:
    candidates = [read for read, target in usable_pairs(graph, op) if target == written]
    if len(candidates) != 1:
        return bool(candidates)
    users = graph.structure.users[candidates[0]]
    return bool((ran[users] | (users == op)).all())


def own_bytes(graph: Graph, op: OpId, space: SpaceId) -> int:
    """Return an op's bytes touched and used as scratch in a space, without persistent buffers and callees."""
    touched = np.unique(np.concatenate([rows[op] for rows in (graph.reads, graph.writes, graph.mutates)]))
    here = touched[(graph.buffer_spaces[touched] == space) & ~graph.persistent[touched]]
    scratch = int(graph.scratch[op]) if graph.scratch_spaces[op] == space else 0
    return int(graph.sizes[here].sum()) + scratch
