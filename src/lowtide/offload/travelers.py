"""Which buffers may visit the host."""

import numpy as np
from numpy.typing import NDArray

from lowtide.graph import Graph, Lifetime
from lowtide.recompute.program import Program
from lowtide.recompute.rules import in_class


def may_travel(program: Program) -> NDArray[np.bool_]:
    """Return, per buffer, whether plans may copy it to the host and back.

    It lives in the space that the budget is for, has bytes, and is written once, by an op that may run again. All that
    such an op allocates travels, or nothing: ops that keep something elsewhere, call graphs or have scratch in another
    space are left out. O(n + e).
    """
    graph = program.problem.graph
    accesses = np.zeros(graph.n_buffers, np.int64)
    for rows in (graph.writes, graph.mutates):
        np.add.at(accesses, rows.values, 1)
    alone = (graph.buffer_spaces == program.space) & (graph.lifetimes >= Lifetime.INTERMEDIATE) & (accesses == 1)
    ops = ops_that_may(graph, program.space)
    allocates = graph.structure.allocates
    ops[allocates.owners()[~alone[allocates.values]]] = False
    travels = np.zeros(graph.n_buffers, np.bool_)
    travels[allocates.values[ops[allocates.owners()]]] = True
    return travels & (graph.sizes > 0)


def ops_that_may(graph: Graph, space: int) -> NDArray[np.bool_]:
    """Return, per op, whether it may run again, calls nothing and has its scratch in a space."""
    calls = np.fromiter((bool(names) for names in graph.callees), np.bool_, graph.n_ops)
    return in_class(graph) & ~calls & (graph.scratch_spaces == space)


def with_siblings(graph: Graph, travels: NDArray[np.bool_], allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the chosen buffers and all that may travel of the ops that write them."""
    ops = np.zeros(graph.n_ops, np.bool_)
    ops[graph.structure.producers[travels]] = True
    allocates = graph.structure.allocates
    chosen = np.zeros(graph.n_buffers, np.bool_)
    chosen[allocates.values[ops[allocates.owners()]]] = True
    return chosen & allowed
