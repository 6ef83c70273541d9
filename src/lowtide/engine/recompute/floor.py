"""The floor: the least peak of any plan, even with recomputation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.analysis.lower_bounds import LowerBound, with_callee_floors
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.graph.execution import counted_sizes, may_run_twice, usable_pairs
from lowtide.engine.recompute.program import OrderedProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Memory that every plan keeps resident at one moment."""

    peak_bytes: int
    op: OpId | None
    buffers: tuple[BufferId, ...]
    """Largest first, without scratch and callees."""
    scratch_bytes: int = 0


def floor_of(program: OrderedProgram) -> Floor:
    """Return the largest need of any single moment of a base order. O(n + e).

    An op needs its own buffers, callees by their bounds, and buffers used later that cannot be recomputed. Holds for
    plans with this order of first runs that recompute only ops of `may_run_twice`.
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
    )


def least_possible(problem: Problem, space: SpaceId) -> LowerBound:
    """Return a lower bound on the peak in a memory space, for any order and recomputation. O(n + e)."""
    graph, structure = problem.graph, problem.graph.structure
    sizes = counted_sizes(graph, space)
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
    """Bytes resident in any plan during the first run at each place."""

    total: NDArray[np.int64]
    scratch: NDArray[np.int64]
    shared: NDArray[np.int64]
    """Most that in-place pairs can save."""
    pinned_from: NDArray[np.int64]
    """Where a buffer that cannot be recomputed is allocated (-1: the start), or the number of ops."""
    pinned_until: NDArray[np.int64]
    """Its last use (number of ops: the end), or -1."""
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    recomputable: NDArray[np.bool_]


def needs_by_place(program: OrderedProgram) -> Needs:
    graph, places, sizes = program.problem.graph, program.places, program.counted_sizes
    n, structure = graph.n_ops, graph.structure
    own = np.zeros(n, np.int64)
    for rows in (structure.touches, structure.allocates):
        np.add.at(own, places[rows.owners()], sizes[rows.values])
    scratch = np.empty(n, np.int64)
    scratch[places] = with_callee_floors(program.problem).transient[:, program.space]

    first, last = first_and_last_use(program)
    recomputable = is_recomputable(graph)
    exists = (structure.producers >= 0) | graph.exists_at_start
    pinned = exists & ~recomputable
    pinned_from = np.where(pinned, first, n)
    pinned_until = np.where(pinned, last, -1)
    held = np.zeros(n + 2, np.int64)
    np.add.at(held, first[pinned] + 1, sizes[pinned])
    np.add.at(held, np.maximum(last, first + 1)[pinned], -sizes[pinned])
    total = np.cumsum(held)[:n] + own + scratch
    # Buffers touched strictly inside their pinned range were counted twice.
    place, buffer = places[structure.touches.owners()], structure.touches.values
    twice = pinned[buffer] & (first[buffer] < place) & (place < last[buffer])
    np.subtract.at(total, place[twice], sizes[buffer[twice]])
    shared = _max_in_place_savings(program, pinned_until)
    return Needs(total - shared, scratch, shared, pinned_from, pinned_until, first, last, recomputable)


def first_and_last_use(program: OrderedProgram) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, per buffer, the places of its allocation (-1: the start) and last use (n: the end)."""
    graph, places = program.problem.graph, program.places
    producers, users = graph.structure.producers, graph.structure.users
    first = np.where(producers >= 0, places[producers] if graph.n_ops else -1, -1).astype(np.int64)
    last = first.copy()
    np.maximum.at(last, users.owners(), places[users.values])
    last[graph.counted_at_end] = graph.n_ops
    return first, last


def is_recomputable(graph: Graph) -> NDArray[np.bool_]:
    """Return a mask of buffers whose allocating op may run twice."""
    producers = graph.structure.producers
    recomputable = np.zeros(graph.n_buffers, np.bool_)
    made = producers >= 0
    recomputable[made] = may_run_twice(graph)[producers[made]]
    return recomputable & ~graph.persistent


def _max_in_place_savings(program: OrderedProgram, pinned_until: NDArray[np.int64]) -> NDArray[np.int64]:
    graph, places = program.problem.graph, program.places
    shared = np.zeros(graph.n_ops, np.int64)
    for op in np.flatnonzero(np.diff(graph.in_place.offsets)).tolist():
        pairs = possible_pairs(program, op, pinned_until)
        sizes = sorted({written: int(program.counted_sizes[written]) for _, written in pairs}.values(), reverse=True)
        shared[places[op]] = sum(sizes[: len({read for read, _ in pairs})])
    return shared


def possible_pairs(program: OrderedProgram, op: OpId, pinned_until: NDArray[np.int64]) -> list[tuple[int, int]]:
    if not program.problem.in_place:
        return []
    return [pair for pair in usable_pairs(program.problem.graph, op) if pinned_until[pair[0]] <= program.places[op]]


def _largest(program: OrderedProgram, buffers: NDArray[np.int64]) -> tuple[int, ...]:
    sizes = program.counted_sizes[buffers]
    kept = buffers[sizes > 0]
    return tuple(kept[np.lexsort((kept, -sizes[sizes > 0]))].tolist())


def least_bytes(program: OrderedProgram, floor: Floor) -> int:
    """Return a lower bound on a base order's peak."""
    return max(floor.peak_bytes, least_to_gather(program.problem, program.space).peak_bytes)


def least_to_gather(problem: Problem, space: SpaceId) -> LowerBound:
    """Return a lower bound on the peak in a memory space, for any order and recomputation, without copies.

    While an op's last operand is made, its other operands are resident. O(n + e) for estimates, O(operands * accesses
    of their producers) per op tried.
    """
    graph, structure = problem.graph, problem.graph.structure
    sizes = counted_sizes(graph, space)
    staying = graph.lifetimes == Lifetime.INPUT
    always = int(sizes[staying].sum())
    moving = np.where(staying, 0, sizes)
    scratch = with_callee_floors(problem).transient[:, space]
    touched, own = np.zeros(graph.n_ops, np.int64), scratch.astype(np.int64)
    np.add.at(touched, structure.touches.owners(), moving[structure.touches.values])
    np.add.at(own, structure.allocates.owners(), moving[structure.allocates.values])
    own += touched

    producers = structure.producers[structure.touches.values]
    is_made = producers >= 0
    unknown = np.iinfo(np.int64).max
    easiest = np.full(graph.n_ops, unknown)
    np.minimum.at(easiest, structure.touches.owners()[is_made], own[producers[is_made]])
    most = np.where(easiest < unknown, touched + np.where(easiest < unknown, easiest, 0), 0)

    def at_last(op: OpId, last: BufferId) -> int:
        producer, operands = int(structure.producers[last]), structure.touches[op].tolist()
        there = {*operands, *structure.touches[producer].tolist(), *structure.allocates[producer].tolist()}
        pairs = graph.in_place_pairs(producer) if problem.in_place else []
        paired = {written for read, written in pairs if read not in operands}
        return int(moving[list(there)].sum() + scratch[producer] - sizes[list(paired)].sum())

    worst = LowerBound(space=graph.spaces[space].name, peak_bytes=always, op=None)
    for op in np.argsort(-most, kind="stable").tolist():
        if always + most[op] <= worst.peak_bytes:
            break
        made = [buffer for buffer in structure.touches[op].tolist() if structure.producers[buffer] >= 0]
        least = always + min(at_last(op, buffer) for buffer in made)
        if least > worst.peak_bytes:
            worst = LowerBound(space=worst.space, peak_bytes=least, op=op)
    return worst
