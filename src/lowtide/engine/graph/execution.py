"""Rules for running ops."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.graph.check import check_graph
from lowtide.engine.graph.graph import Graph, Lifetime
from lowtide.engine.graph.rows import Rows

RESULT_IS_BODY_ROOT = frozenset({"while", "call", "conditional"})
ABSENT = -1
"""Version of a buffer that is not resident."""


def is_valid_order(graph: Graph, order: NDArray[np.integer]) -> bool:
    """Return whether an order has every op once, after its predecessors. O(n + e)."""
    if order.shape != (graph.n_ops,) or (graph.n_ops and not 0 <= order.min() <= order.max() < graph.n_ops):
        return False
    place = np.full(graph.n_ops, -1, np.int64)
    place[order] = np.arange(graph.n_ops)
    before = graph.structure.predecessors
    return bool((place >= 0).all() and (place[before.values] < place[before.owners()]).all())


def reorder_graph(graph: Graph, order: NDArray[np.int32]) -> Graph:
    """Return the graph in another order, with the same buffer ids; raises GraphError for an invalid one. O(n + e)."""
    place = np.empty(graph.n_ops, np.int32)
    place[order] = np.arange(graph.n_ops, dtype=np.int32)
    moved = graph.take_ops(order)
    reordered = replace(moved, after=Rows(moved.after.offsets, place[moved.after.values]))
    check_graph(reordered)
    return reordered


def may_run_twice(graph: Graph) -> NDArray[np.bool_]:
    """Return a mask of the ops that may be recomputed. O(n + e).

    They mutate no buffer, write only buffers that they allocate, and are repeatable, or pure and either unordered or
    collectives: all ranks follow the same plan.
    """
    pure = graph.pure & (~graph.ordered | (graph.ranks > 1))
    return (pure | graph.repeatable) & ~_changes_existing_buffer(graph)


def why_not_twice(graph: Graph, op: OpId) -> str:
    if not (graph.pure[op] or graph.repeatable[op]):
        return "is not pure"
    if graph.ordered[op] and graph.ranks[op] == 1 and not graph.repeatable[op]:
        return "keeps its place among the ordered ops"
    return "changes an existing buffer"


def _changes_existing_buffer(graph: Graph) -> NDArray[np.bool_]:
    changes = np.zeros(graph.n_ops, np.bool_)
    changes[graph.mutates.owners()] = True
    foreign = graph.structure.producers[graph.writes.values] != graph.writes.owners()
    changes[graph.writes.owners()[foreign]] = True
    return changes


def usable_pairs(graph: Graph, op: OpId) -> list[tuple[BufferId, BufferId]]:
    """Return an op's in-place pairs that can share storage, once each."""
    return [
        (read, written)
        for read, written in dict.fromkeys(graph.in_place_pairs(op))
        if graph.freeable[read]
        and graph.structure.producers[written] == op
        and graph.sizes[read] == graph.sizes[written]
        and graph.buffer_spaces[read] == graph.buffer_spaces[written]
    ]


def counted_sizes(graph: Graph, space: SpaceId) -> NDArray[np.int64]:
    return np.where((graph.buffer_spaces == space) & ~graph.persistent, graph.sizes, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """Versions of buffers in program order. Every write makes one.

    Op i has the accesses `first[i]` to `first[i + 1]`. Those from `writes_from[i]` on are writes, which leave version
    `seen + 1`. A write that finds ABSENT allocates.
    """

    first: Sequence[int]
    writes_from: Sequence[int]
    buffers: Sequence[BufferId]
    seen: Sequence[int]
    final: Sequence[int]

    def allocated_by(self, op: OpId) -> list[BufferId]:
        writes = range(self.writes_from[op], self.first[op + 1])
        return [self.buffers[access] for access in writes if self.seen[access] == ABSENT]


def program_versions(graph: Graph) -> Versions:
    """Return the versions of all buffers, starting at 0. O(n + e)."""
    current = [0 if lifetime <= Lifetime.DONATED else ABSENT for lifetime in graph.lifetimes.tolist()]
    first, writes_from = [0], list[int]()
    buffers, seen = list[int](), list[int]()
    for reads, mutates, writes in zip(graph.reads, graph.mutates, graph.writes, strict=True):
        written = list(dict.fromkeys(mutates + writes)) if mutates or len(writes) > 1 else writes
        buffers += reads
        writes_from.append(len(buffers))
        buffers += written
        seen += [current[buffer] for buffer in reads]
        seen += [current[buffer] for buffer in written]
        for buffer in written:
            current[buffer] += 1
        first.append(len(buffers))
    return Versions(first, writes_from, buffers, seen, current)


def transient_bytes(graph: Graph, callee_peaks: Mapping[str, Mapping[str, int]]) -> NDArray[np.int64]:
    """Return the bytes that ops need only while they run, shape (ops, spaces).

    These are scratch and the largest of the `callee_peaks`, by callee and space name. The peak of a while, call or
    conditional includes its result, which is subtracted.
    """
    result = np.zeros((graph.n_ops, len(graph.spaces)), np.int64)
    result[np.arange(graph.n_ops), graph.scratch_spaces] = graph.scratch
    spaces = [space.name for space in graph.spaces]
    for op, callees in enumerate(graph.callees):
        if not callees:
            continue
        inner = np.array([max(callee_peaks[name].get(space, 0) for name in callees) for space in spaces], np.int64)
        if graph.op_kinds[op] in RESULT_IS_BODY_ROOT:
            for buffer in {*graph.structure.allocates[op].tolist(), *graph.mutates[op].tolist()}:
                if not graph.persistent[buffer]:
                    inner[graph.buffer_spaces[buffer]] -= graph.sizes[buffer]
        result[op] += np.maximum(inner, 0)
    return result
