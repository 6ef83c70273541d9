"""Which buffers a plan may offload."""

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import SpaceId
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import may_run_twice
from lowtide.engine.recompute.program import Program


def offloadable_buffers(program: Program) -> NDArray[np.bool_]:
    """Return a mask over buffers: those that a plan may copy to the host and back.

    Such a buffer lives in the space that the budget is for, has bytes, and is written once, by an op that may run
    again. An op's results are offloaded all or not at all. So none are if one of them lies elsewhere, if the op calls
    graphs, or if its scratch lies in another space. O(n + e).
    """
    graph = program.problem.graph
    accesses = np.zeros(graph.n_buffers, np.int64)
    for rows in (graph.writes, graph.mutates):
        np.add.at(accesses, rows.values, 1)
    alone = (graph.buffer_spaces == program.space) & ~graph.exists_at_start & (accesses == 1)
    ops = _ops_confined_to(graph, program.space)
    allocates = graph.structure.allocates
    ops[allocates.owners()[~alone[allocates.values]]] = False
    buffers = np.zeros(graph.n_buffers, np.bool_)
    buffers[allocates.values[ops[allocates.owners()]]] = True
    return buffers & (graph.sizes > 0)


def _ops_confined_to(graph: Graph, space: SpaceId) -> NDArray[np.bool_]:
    """Return a mask over ops: those that may run again, call nothing and have their scratch in a space."""
    calls = np.fromiter((bool(names) for names in graph.callees), np.bool_, graph.n_ops)
    return may_run_twice(graph) & ~calls & (graph.scratch_spaces == space)


def with_results_of_same_ops(
    graph: Graph, offloaded: NDArray[np.bool_], allowed: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return a mask over buffers: all results that are `allowed`, of the ops that write the offloaded ones."""
    ops = np.zeros(graph.n_ops, np.bool_)
    ops[graph.structure.producers[offloaded]] = True
    allocates = graph.structure.allocates
    chosen = np.zeros(graph.n_buffers, np.bool_)
    chosen[allocates.values[ops[allocates.owners()]]] = True
    return chosen & allowed
