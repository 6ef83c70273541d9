"""A sum of many values becomes a running accumulation, so that each value can go as soon as it is added."""

from collections.abc import Collection, Sequence

import numpy as np
from msgspec.structs import replace

from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import OpId
from lowtide.engine.graph import Graph, GraphBuilder, Op


def can_accumulate(graph: Graph, op: OpId) -> bool:
    """Return whether an op can become an accumulation: pure, with one fresh result that is as large as each operand."""
    record = graph.op(op)
    fresh = graph.structure.allocates[op].tolist()
    if (
        not record.pure
        or record.ordered
        or record.mutates
        or record.callees
        or list(record.writes) != fresh
        or len(fresh) != 1
    ):
        return False
    result = graph.buffer(fresh[0])
    return bool(record.reads) and all(
        (graph.buffer(read).size_bytes, graph.buffer(read).space) == (result.size_bytes, result.space)
        for read in record.reads
    )


def accumulate_sums(graph: Graph, sums: Collection[OpId]) -> Graph:
    """Return the graph in which each of the given sums starts from zero and adds every operand where it is written.

    A sum `s` becomes several ops: `s/tmp_var_zeros` allocates the result once the first operand is there, one
    `s/tmp_var_accum_<i>` per operand mutates it, and `s` itself hands it on. If what had to come before the sum came
    before the first operand, it comes before the zeros, else before `s`. Buffers keep their ids. Floating-point numbers
    are added in the order in which operands are written. Raises UsageError for an op that `can_accumulate` refuses.

    Source: memory_optimizer.cc of TensorFlow, SchedulingPass. O(n + e). While the operands come into being one after
    the other, two of them are live instead of all.
    """
    for op in sums:
        if not can_accumulate(graph, op):
            raise UsageError(f"op {graph.op_names[op]!r} is no pure sum of buffers of one size; leave it as it is")
    names = set(graph.op_names)
    parts = _Parts(graph.n_ops)
    writers = np.full(graph.n_buffers, -1, np.int64)
    for op, record in enumerate(graph.ops()):
        if op in sums:
            _split(op, record, [int(writers[read]) for read in record.reads], parts, names)
        for buffer in (*record.writes, *record.mutates):
            writers[buffer] = op
    return _rebuild(graph, sums, parts)


class _Parts:
    """New ops by the op that they follow; -1 stands for the start of the program. Their `after` holds old op ids."""

    def __init__(self, n_ops: int) -> None:
        self._behind: list[list[Op]] = [[] for _ in range(n_ops + 1)]
        self.ends: dict[OpId, Op] = {}

    def insert(self, op: OpId, part: Op) -> None:
        self._behind[op + 1].append(part)

    def behind(self, op: OpId) -> Sequence[Op]:
        return self._behind[op + 1]


def _split(op: OpId, record: Op, writers: Sequence[OpId], parts: _Parts, names: set[str]) -> None:
    """Plan the parts of one sum; `writers` holds the last writer of each operand.

    What exists from the start (-1) is added with the first operand that is written.
    """
    (result,) = record.writes
    first = min((writer for writer in writers if writer >= 0), default=op - 1)
    early = tuple(earlier for earlier in record.after if earlier < first)
    late = tuple(earlier for earlier in record.after if earlier >= first)
    step = record.cost / len(writers)
    stem = record.name
    while any(f"{stem}/tmp_var_{what}" in names for what in ("zeros", *(f"accum_{i}" for i in range(len(writers))))):
        stem += "'"
    zeros = Op(
        name=f"{stem}/tmp_var_zeros",
        kind="ZerosLike",
        reads=(),
        writes=(result,),
        after=early,
        cost=0.0,
        device=record.device,
    )
    parts.insert(first, zeros)
    for place, (read, writer) in enumerate(zip(record.reads, writers, strict=True)):
        accumulation = Op(
            name=f"{stem}/tmp_var_accum_{place}",
            kind="AssignAdd",
            reads=(read,),
            writes=(),
            mutates=(result,),
            pure=False,
            cost=step,
            device=record.device,
        )
        parts.insert(max(writer, first), accumulation)
    parts.ends[op] = Op(
        name=record.name,
        kind="DestroyTemporaryVariable",
        reads=(),
        writes=(),
        mutates=(result,),
        after=late,
        pure=False,
        cost=0.0,
        device=record.device,
    )


def _rebuild(graph: Graph, sums: Collection[OpId], parts: _Parts) -> Graph:
    builder = GraphBuilder(graph.name)
    for name, subgraph in graph.subgraphs.items():
        builder.add_subgraph(name, subgraph)
    builder.copy_storage(graph)
    new_ids: dict[OpId, OpId] = {}

    def add(op: Op) -> OpId:
        return builder.add(replace(op, after=tuple(new_ids[earlier] for earlier in op.after)))

    for part in parts.behind(-1):
        add(part)
    for op, record in enumerate(graph.ops()):
        new_ids[op] = add(parts.ends[op] if op in sums else record)
        for part in parts.behind(op):
            add(part)
    for sentence in graph.unmodeled:
        builder.note(sentence)
    return builder.build()
