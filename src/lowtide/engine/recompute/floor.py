"""The floor: the peak that no plan with recomputation can beat."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.analysis.lower_bounds import LowerBound, with_callee_floors
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.graph.execution import may_run_twice
from lowtide.engine.recompute.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What must be resident at once, whatever is dropped and run again."""

    peak_bytes: int
    op: OpId | None
    """The op that needs that much while it runs; None when the start or the end does."""
    buffers: tuple[BufferId, ...]
    """What is resident then, largest first; scratch and callees come on top."""
    scratch_bytes: int = 0
    shared_bytes: int = 0
    """Bytes that in-place pairs save at that op."""


def floor_of(program: Program) -> Floor:
    """Return the largest need of any single moment of a base order.

    While an op runs, all that it touches and allocates is resident, and so is every buffer that exists already, is
    used later and cannot be made again (inputs that stay, donated inputs, what random or ordered ops wrote). Before the
    first op all inputs are there, after the last one all outputs. Callees count with bounds of their own.
    Holds for every plan whose first runs keep this order and that runs nothing again but what `may_run_twice` allows.
    O(n + e).
    """
    graph = program.problem.graph
    needs = needs_by_place(program)
    edges = [(int(program.counted_sizes[mask].sum()), mask) for mask in (graph.counted_at_start, graph.counted_at_end)]
    worst = int(needs.total.argmax()) if graph.n_ops else -1
    if worst < 0 or max(edges[0][0], edges[1][0]) >= needs.total[worst]:
        bytes_there, mask = max(edges, key=lambda edge: edge[0])
        return Floor(peak_bytes=bytes_there, op=None, buffers=_largest(program, np.flatnonzero(mask)))
    op = int(program.order[worst])
    own = np.concatenate([graph.structure.touches[op], graph.structure.allocates[op]])
    pinned = np.flatnonzero((needs.pinned_from < worst) & (needs.pinned_until > worst))
    return Floor(
        peak_bytes=int(needs.total[worst]),
        op=op,
        buffers=_largest(program, np.union1d(own, pinned)),
        scratch_bytes=int(needs.scratch[worst]),
        shared_bytes=int(needs.shared[worst]),
    )


def least_possible(problem: Problem, space: SpaceId) -> LowerBound:
    """Return the least peak of any plan in a memory space, whatever its order and whatever it runs again. O(n + e).

    Inputs that stay are always there, all inputs at the start and all outputs at the end; while an op runs, all that
    it touches and allocates is there too, less what in-place pairs may save.
    """
    graph, structure = problem.graph, problem.graph.structure
    here = (graph.buffer_spaces == space) & ~graph.persistent
    sizes = np.where(here, graph.sizes, 0)
    staying = graph.lifetimes == Lifetime.INPUT
    always = int(sizes[staying].sum())
    own = np.zeros(graph.n_ops, np.int64)
    for rows in (structure.touches, structure.allocates):
        np.add.at(own, rows.owners(), np.where(staying, 0, sizes)[rows.values])
    saved = np.zeros(graph.n_ops, np.int64)
    if problem.in_place:
        pairs, owners = graph.in_place.values.reshape(-1, 2), graph.in_place.owners()[::2]
        ends = np.unique(np.stack([owners, pairs[:, 1]], axis=1), axis=0)
        np.add.at(saved, ends[:, 0], sizes[ends[:, 1]])
    needs = always + own + with_callee_floors(problem).transient[:, space] - saved
    edges = max(int(sizes[graph.exists_at_start].sum()), int(sizes[graph.exists_at_end].sum()))
    worst = int(needs.argmax()) if graph.n_ops else -1
    if worst < 0 or edges >= needs[worst]:
        return LowerBound(space=graph.spaces[space].name, peak_bytes=edges, op=None)
    return LowerBound(space=graph.spaces[space].name, peak_bytes=int(needs[worst]), op=worst)


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """Per place in the base order, what is resident while that op first runs, in any plan."""

    total: NDArray[np.int64]
    scratch: NDArray[np.int64]
    shared: NDArray[np.int64]
    """The most that in-place pairs can save."""
    pinned_from: NDArray[np.int64]
    """Per buffer that cannot be made again: the place that allocates it, -1 at the start; else the number of ops."""
    pinned_until: NDArray[np.int64]
    """Per buffer that cannot be made again: the place of its last use, the number of ops at the end."""
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    """Per buffer, the place that allocates it and that of its last use, see `first_and_last_use`."""
    remade: NDArray[np.bool_]
    """Per buffer, whether it can be made again."""


def needs_by_place(program: Program) -> Needs:
    """Return what every op of a base order needs, in O(n + e)."""
    graph, places, sizes = program.problem.graph, program.places, program.counted_sizes
    n, structure = graph.n_ops, graph.structure
    own = np.zeros(n, np.int64)
    for rows in (structure.touches, structure.allocates):
        np.add.at(own, places[rows.owners()], sizes[rows.values])
    scratch = np.empty(n, np.int64)
    scratch[places] = with_callee_floors(program.problem).transient[:, program.space]

    first, last = first_and_last_use(program)
    remade = can_be_remade(graph)
    exists = (structure.producers >= 0) | graph.exists_at_start
    pinned = exists & ~remade
    pinned_from = np.where(pinned, first, n)
    pinned_until = np.where(pinned, last, -1)
    held = np.zeros(n + 2, np.int64)
    np.add.at(held, first[pinned] + 1, sizes[pinned])
    np.add.at(held, np.maximum(last, first + 1)[pinned], -sizes[pinned])
    total = np.cumsum(held)[:n] + own + scratch
    # What an op touches strictly inside its pinned range was counted twice.
    place, buffer = places[structure.touches.owners()], structure.touches.values
    twice = pinned[buffer] & (first[buffer] < place) & (place < last[buffer])
    np.subtract.at(total, place[twice], sizes[buffer[twice]])
    shared = _most_shared(program, pinned_until)
    return Needs(total - shared, scratch, shared, pinned_from, pinned_until, first, last, remade)


def first_and_last_use(program: Program) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, per buffer, the place that allocates it (-1: the start) and that of its last use (n: the end)."""
    graph, places = program.problem.graph, program.places
    producers, users = graph.structure.producers, graph.structure.users
    first = np.where(producers >= 0, places[producers] if graph.n_ops else -1, -1).astype(np.int64)
    last = first.copy()
    np.maximum.at(last, users.owners(), places[users.values])
    last[graph.counted_at_end] = graph.n_ops
    return first, last


def can_be_remade(graph: Graph) -> NDArray[np.bool_]:
    """Return, per buffer, whether an op that allocates it may run again in some plan of the class."""
    producers = graph.structure.producers
    remade = np.zeros(graph.n_buffers, np.bool_)
    made = producers >= 0
    remade[made] = may_run_twice(graph)[producers[made]]
    return remade & ~graph.persistent


def _most_shared(program: Program, pinned_until: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, per place, the most bytes that in-place pairs can save there: every output once, every input once."""
    graph, places = program.problem.graph, program.places
    shared = np.zeros(graph.n_ops, np.int64)
    for op in np.flatnonzero(np.diff(graph.in_place.offsets)).tolist():
        pairs = possible_pairs(program, op, pinned_until)
        sizes = sorted({written: int(program.counted_sizes[written]) for _, written in pairs}.values(), reverse=True)
        shared[places[op]] = sum(sizes[: len({read for read, _ in pairs})])
    return shared


def possible_pairs(program: Program, op: OpId, pinned_until: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the in-place pairs that an op may take when it first runs, in some plan; none where none are allowed."""
    if not program.problem.in_place:
        return []
    graph, place = program.problem.graph, program.places[op]
    flat = graph.in_place[op].tolist()
    return [
        (read, written)
        for read, written in dict.fromkeys(zip(flat[::2], flat[1::2], strict=True))
        if graph.structure.producers[written] == op
        and Lifetime(int(graph.lifetimes[read])).freeable
        and graph.sizes[read] == graph.sizes[written]
        and graph.buffer_spaces[read] == graph.buffer_spaces[written]
        and pinned_until[read] <= place
    ]


def _largest(program: Program, buffers: NDArray[np.int64]) -> tuple[int, ...]:
    sizes = program.counted_sizes[buffers]
    kept = buffers[sizes > 0]
    return tuple(kept[np.lexsort((kept, -sizes[sizes > 0]))].tolist())
