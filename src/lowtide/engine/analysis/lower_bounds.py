"""Lower bounds of the peak of all orders, with the op and the tensors that set them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.core.units import ByteUnit
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Graph, Lifetime

MOST_WORK = 200_000_000
"""Work limit of the flows of one bound, in arcs: a few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """The lower bound of the peak in one memory space."""

    space: str
    peak_bytes: int
    op: OpId | None
    """The op that sets the bound, None if the inputs or the outputs set it."""
    before: NDArray[np.bool_] | None = field(default=None, compare=False, repr=False)
    """Mask of the ops that run before this op in the case that needs the fewest bytes."""


class CalleeBounds:
    """The bounds of callees, computed once each. Otherwise n levels of calls could take 2^n steps."""

    def __init__(self, *, in_place: bool) -> None:
        self._in_place = in_place
        self._known: dict[int, tuple[Graph, list[LowerBound]]] = {}
        """By id of the graph, which is kept alive here."""

    def of(self, graph: Graph) -> list[LowerBound]:
        """Return the bounds of a callee."""
        if id(graph) not in self._known:
            problem = Problem(graph, in_place=self._in_place)
            self._known[id(graph)] = graph, lower_bounds(problem, [problem.given_order()], self)
        return self._known[id(graph)][1]


def lower_bounds(problem: Problem, orders: Iterable[Order], callees: CalleeBounds | None = None) -> list[LowerBound]:
    """Return, per memory space, the largest number of bytes that a single op needs in every order.

    The ops that run before an op are closed under predecessors, with its ancestors and without its descendants. Live
    bytes are submodular over such sets, so their minimum is a minimum cut: one flow over the ops incomparable with it.
    Ops are tried in descending order of their need in the given orders, until an op needs no more than the bound; one
    flow is usually enough. All inputs exist before the first op, all outputs after the last. If an op has a choice of
    in-place pairs, the best case is assumed. Stops after `MOST_WORK` arcs with a weaker bound.
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
    """Return the problem with the lower bound of each callee as its peak."""
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
    """Return the live bytes of a space before the first op or after the last op, whichever is more."""
    here = graph.buffer_spaces == space
    return max(int(graph.sizes[here & counted].sum()) for counted in (graph.counted_at_start, graph.counted_at_end))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundHolder:
    """A buffer that is live at the lower bound in every order."""

    space: str
    name: str
    size_bytes: int
    lifetime: str = "scratch"
    kind: str | None = None
    """Kind of the op that allocates it."""
    made_at: str | None = None
    """Place of this op, or of the op with the scratch, in the user's program, None if unknown."""


def bound_holders(problem: Problem, bounds: Sequence[LowerBound]) -> list[BoundHolder]:
    """Return the tensors that are live at the bound of each memory space, largest first. O(n + e) per space.

    They are live while the op that sets the bound runs right after its minimum cut, and add up to the bound. Outputs
    that can take over the storage of an operand are excluded. Transient bytes are listed as "scratch of" the op. If no
    op sets the bound, the tensors before the first or after the last op are listed.
    """
    problem = with_callee_floors(problem)
    graph = problem.graph
    holders: list[BoundHolder] = []
    for position, bound in enumerate(bounds):
        if bound.op is None or bound.before is None:
            held = _at_the_edges(graph, position)
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
    """Return a buffer with the facts about its producer."""
    maker = int(graph.structure.producers[buffer])
    return BoundHolder(
        space=space,
        name=graph.buffer_names[buffer],
        size_bytes=int(graph.sizes[buffer]),
        lifetime=Lifetime(int(graph.lifetimes[buffer])).name.lower(),
        kind=graph.op_kinds[maker] if maker >= 0 else None,
        made_at=graph.sources[maker] if maker >= 0 else None,
    )


def _at_the_edges(graph: Graph, space: SpaceId) -> NDArray[np.bool_]:
    here = graph.buffer_spaces == space
    return max(graph.counted_at_start, graph.counted_at_end, key=lambda edge: int(graph.sizes[here & edge].sum()))


def _at_op(problem: Problem, op: OpId, ran: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of the buffers that are live while an op runs after exactly the ops in `ran`."""
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
    """Return whether a written buffer takes over the storage of an operand in the best case of the bound."""
    candidates = [
        read
        for read, target in graph.in_place_pairs(op)
        if target == written
        and graph.freeable[read]
        and graph.sizes[read] == graph.sizes[written]
        and graph.buffer_spaces[read] == graph.buffer_spaces[written]
    ]
    if len(candidates) != 1:
        return bool(candidates)
    users = graph.structure.users[candidates[0]]
    return bool((ran[users] | (users == op)).all())


def describe_need(graph: Graph, op: OpId, space: SpaceId, needed: int) -> str:
    """Return the subject and verb of a sentence that ends with the bytes needed while an op runs."""
    touched = np.unique(np.concatenate([rows[op] for rows in (graph.reads, graph.writes, graph.mutates)]))
    here = touched[(graph.buffer_spaces[touched] == space) & ~graph.persistent[touched]]
    scratch = int(graph.scratch[op]) if graph.scratch_spaces[op] == space else 0
    own = int(graph.sizes[here].sum()) + scratch
    if own >= needed:
        return f"op {graph.described(op)} alone needs"
    return f"op {graph.described(op)} ({ByteUnit(needed).write(own)}) and other live tensors need at least"
