"""Which ops may run a second time."""

import numpy as np
from numpy.typing import NDArray

from lowtide.analysis.problem import Order
from lowtide.graph import Graph


def in_class(graph: Graph) -> NDArray[np.bool_]:
    """Return, per op, whether any plan that a bound speaks of may run it twice.

    Such an op is pure and unordered and writes nothing but what it allocates: random draws, collectives, opaque ops
    and mutations run once. O(n + e).
    """
    writes_only_own = np.ones(graph.n_ops, np.bool_)
    writes_only_own[graph.mutates.owners()] = False
    foreign = graph.structure.producers[graph.writes.values] != graph.writes.owners()
    writes_only_own[graph.writes.owners()[foreign]] = False
    allocates = np.diff(graph.structure.allocates.offsets) > 0
    return graph.pure & ~graph.ordered & writes_only_own & allocates


def may_rerun(graph: Graph, order: Order) -> NDArray[np.bool_]:
    """Return, per op, whether it may run again at any later moment of an order.

    It is in the class above, and nothing that it reads or writes gets other contents after it ran. O(n + e).
    """
    place = np.empty(graph.n_ops, np.int64)
    place[order] = np.arange(graph.n_ops)
    last_write = np.full(graph.n_buffers, -1, np.int64)
    for rows in (graph.writes, graph.mutates):
        np.maximum.at(last_write, rows.values, place[rows.owners()])
    allowed = in_class(graph)
    for rows in (graph.reads, graph.writes):
        changed = last_write[rows.values] > place[rows.owners()]
        allowed[rows.owners()[changed]] = False
    return allowed
