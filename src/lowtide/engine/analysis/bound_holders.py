"""Why a peak cannot be lower: what the op that sets the bound forces to be live."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.analysis.lower_bounds import LowerBound, with_callee_floors
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph, Lifetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundHolder:
    """One buffer that is live at the bound, however the ops are ordered to attain it."""

    space: str
    name: str
    size_bytes: int
    lifetime: str = "scratch"
    kind: str | None = None
    """The kind of the op that makes it."""
    made_at: str | None = None
    """Where the user's program has that op, or the op whose scratch it is; None where nobody said."""


def bound_holders(problem: Problem, bounds: Sequence[LowerBound]) -> list[BoundHolder]:
    """List, per memory space, what is live where its bound is attained, largest first.

    `bounds` are those of `lower_bounds`, one per memory space. What is listed is live while the op that sets the bound
    runs after exactly the ops of its minimum cut; it adds up to the bound. A written buffer that can take over the
    storage of an operand is left out. Transient bytes are listed as "scratch of" the op. Where no op sets the bound,
    the buffers before the first op or after the last one are listed. O(n + e) per space.
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
    """Return a buffer with what is known of the op that makes it."""
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
    """Return per buffer whether it is live while the op runs when exactly `ran` has run."""
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
    """Whether an op writes a buffer into the storage of an operand in the best case that the bound allows for."""
    candidates: list[BufferId] = []
    flat = graph.in_place[op].tolist()
    for read, target in zip(flat[::2], flat[1::2], strict=True):
        if (
            target == written
            and Lifetime(int(graph.lifetimes[read])).freeable
            and graph.sizes[read] == graph.sizes[written]
            and graph.buffer_spaces[read] == graph.buffer_spaces[written]
        ):
            candidates.append(read)
    if len(candidates) != 1:
        return bool(candidates)
    users = graph.structure.users[candidates[0]]
    return bool((ran[users] | (users == op)).all())
