"""Sums as accumulations, which free each operand early."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import OpId
from lowtide.engine.graph import Graph, GraphBuilder, Op
from lowtide.frameworks.tensorflow.grappler.nodes import SUM_KINDS
from lowtide.frameworks.tensorflow.grappler.pressure import Pressure

_NEAR_CAPACITY = 0.8


def can_accumulate(graph: Graph, op: OpId) -> bool:
    """Return whether an op is a pure sum with one fresh result, of each operand's size and space."""
    record = graph.op(op)
    fresh = graph.structure.allocates[op].tolist()
    is_plain = record.pure and not (record.ordered or record.mutates or record.callees)
    if not is_plain or list(record.writes) != fresh or len(fresh) != 1:
        return False
    result = graph.buffer(fresh[0])
    return bool(record.reads) and all(
        (graph.buffer(read).size_bytes, graph.buffer(read).space) == (result.size_bytes, result.space)
        for read in record.reads
    )


def sums_near_capacity(graph: Graph, pressure: Pressure, capacity_bytes: int) -> list[OpId]:
    """Return the sums of over two operands that read a buffer alive at a peak over 80 % of the capacity. O(n + e).

    Source: SchedulingPass.
    """
    if pressure.excess_bytes <= (_NEAR_CAPACITY - 1.0) * capacity_bytes:
        return []
    live = np.zeros(graph.n_buffers, np.bool_)
    live[[each.buffer for each in pressure.live]] = True
    return [
        op
        for op, kind in enumerate(graph.op_kinds)
        if kind in SUM_KINDS and len(graph.reads[op]) > 2 and live[graph.reads[op]].any() and can_accumulate(graph, op)
    ]


def accumulate_sums(graph: Graph, sums: Collection[OpId]) -> Graph:
    """Return the graph with `sums` that start from zero and add operands once written. O(n + e).

    A sum `s` becomes `s/tmp_var_zeros`, one `s/tmp_var_accum_<i>` per operand, and `s`, which returns the result.
    Buffers keep their ids. Raises UsageError for an op that `can_accumulate` refuses. Source: SchedulingPass.
    """
    for op in sums:
        if not can_accumulate(graph, op):
            raise UsageError(f"op {graph.op_names[op]!r} is not a pure sum of buffers of one size")
    names = set(graph.op_names)
    inserted: dict[OpId, list[Op]] = {}
    ends: dict[OpId, Op] = {}
    writers = np.full(graph.n_buffers, -1, np.int64)
    for op, record in enumerate(graph.ops()):
        if op in sums:
            parts, ends[op] = _split(op, record, [int(writers[read]) for read in record.reads], names)
            for earlier, part in parts:
                inserted.setdefault(earlier, []).append(part)
        for buffer in (*record.writes, *record.mutates):
            writers[buffer] = op
    return _rebuild(graph, inserted, ends)


def _split(op: OpId, record: Op, writers: Sequence[OpId], names: set[str]) -> tuple[list[tuple[OpId, Op]], Op]:
    """Return the new ops, each with the op that it follows, and the sum's replacement.

    New ops have old op ids in `after`.
    """
    (result,) = record.writes
    first = min((writer for writer in writers if writer >= 0), default=op - 1)
    early = tuple(earlier for earlier in record.after if earlier < first)
    late = tuple(earlier for earlier in record.after if earlier >= first)
    step = record.cost / len(writers)
    stem = record.name
    while any(f"{stem}/tmp_var_{part}" in names for part in ("zeros", *(f"accum_{i}" for i in range(len(writers))))):
        stem += "'"
    new = partial(Op, device=record.device)
    mutation = partial(new, writes=(), mutates=(result,), pure=False)
    zeros = new(name=f"{stem}/tmp_var_zeros", kind="ZerosLike", reads=(), writes=(result,), after=early, cost=0.0)
    parts = [(first, zeros)]
    for place, (read, writer) in enumerate(zip(record.reads, writers, strict=True)):
        addition = mutation(name=f"{stem}/tmp_var_accum_{place}", kind="AssignAdd", reads=(read,), cost=step)
        parts.append((max(writer, first), addition))
    end = mutation(name=record.name, kind="DestroyTemporaryVariable", reads=(), after=late, cost=0.0)
    return parts, end


def _rebuild(graph: Graph, inserted: Mapping[OpId, Sequence[Op]], ends: Mapping[OpId, Op]) -> Graph:
    builder = GraphBuilder(graph.name)
    for name, subgraph in graph.subgraphs.items():
        builder.add_subgraph(name, subgraph)
    builder.copy_storage(graph)
    new_ids: dict[OpId, OpId] = {}

    def add(op: Op) -> OpId:
        return builder.add(replace(op, after=tuple(new_ids[earlier] for earlier in op.after)))

    for part in inserted.get(-1, ()):
        add(part)
    for op, record in enumerate(graph.ops()):
        new_ids[op] = add(ends.get(op, record))
        for part in inserted.get(op, ()):
            add(part)
    for sentence in graph.unmodeled:
        builder.note(sentence)
    return builder.build()
