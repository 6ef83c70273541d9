"""The same program in another order."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.graph.check import check_graph
from lowtide.engine.graph.graph import Graph
from lowtide.engine.graph.rows import Rows


def is_valid_order(graph: Graph, order: NDArray[np.integer]) -> bool:
    """Return whether an order holds every op once, each after all that it waits for. O(n + e)."""
    if order.shape != (graph.n_ops,) or (graph.n_ops and not 0 <= order.min() <= order.max() < graph.n_ops):
        return False
    place = np.full(graph.n_ops, -1, np.int64)
    place[order] = np.arange(graph.n_ops)
    before = graph.structure.predecessors
    return bool((place >= 0).all() and (place[before.values] < place[before.owners()]).all())


def reorder_graph(graph: Graph, order: NDArray[np.int32]) -> Graph:
    """Return the graph with its ops in `order`, a permutation that respects all dependencies; buffers keep their ids.

    Raises GraphError when the order breaks a control edge or reads what is not written yet. O(n + e).
    """
    place = np.empty(graph.n_ops, np.int32)
    place[order] = np.arange(graph.n_ops, dtype=np.int32)
    taken = graph.take_ops(order)
    reordered = replace(taken, after=Rows(taken.after.offsets, place[taken.after.values]))
    check_graph(reordered)
    return reordered
