"""A plan with recomputation as a graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, Op


@dataclass(frozen=True, slots=True, eq=False)
class Unrolled:
    """The graph of a run sequence, free to be reordered."""

    graph: Graph
    op_of: tuple[int, ...]
    """Per op, the original op."""

    def runs(self, order: Order) -> list[int]:
        return [self.op_of[op] for op in order.tolist()]


def unroll(problem: Problem, runs: Sequence[int]) -> Unrolled:
    """Build the graph of a run sequence, each run reading the latest copies. O(runs).

    Control edges bind every run. An output's last copy is the output. Callees' memory becomes scratch.
    """
    graph = problem.graph
    builder = GraphBuilder(graph.name)
    builder.copy_storage(graph)
    structure = graph.structure
    current = list(range(graph.n_buffers))
    ops, allocates = list(graph.ops()), list(structure.allocates)
    first_run: dict[int, int] = {}
    for position, op in enumerate(runs):
        again, record = op in first_run, ops[op]
        seen = {buffer: current[buffer] for buffer in record.reads}
        if again:
            for buffer in allocates[op]:
                if graph.lifetimes[buffer] == Lifetime.OUTPUT:
                    builder.set_lifetime(current[buffer], Lifetime.INTERMEDIATE)
                lifetime = Lifetime(int(graph.lifetimes[buffer]))
                name = f"{graph.buffer_names[buffer]} (run {position})"
                current[buffer] = builder.add_buffer(
                    name, int(graph.sizes[buffer]), lifetime, space=int(graph.buffer_spaces[buffer])
                )
        new = builder.add(
            replace(
                record,
                name=f"{record.name} (run {position})" if again else record.name,
                reads=tuple(seen[buffer] for buffer in record.reads),
                writes=tuple(current[buffer] for buffer in record.writes),
                mutates=tuple(current[buffer] for buffer in record.mutates),
                after=_control(record, first_run.get(op), first_run),
                in_place=tuple((seen[read], current[written]) for read, written in record.in_place),
                scratch_bytes=int(problem.transient[op, graph.scratch_spaces[op]]),
                ordered=record.ordered and not again,
                callees=(),
            )
        )
        first_run.setdefault(op, new)
    return Unrolled(builder.build(), tuple(runs))


def _control(record: Op, earlier_run: int | None, first_run: Mapping[int, int]) -> tuple[int, ...]:
    waits = tuple(first_run[earlier] for earlier in record.after)
    return waits if earlier_run is None or not record.ordered else (*waits, earlier_run)


def first_runs(runs: Sequence[int]) -> Order:
    return np.asarray(list(dict.fromkeys(runs)), np.int32)
