"""The same program in another order."""

import numpy as np
from numpy.typing import NDArray

from lowtide.graph.check import check_graph
from lowtide.graph.edit import permute_ops
from lowtide.graph.graph import Graph


def reorder_graph(graph: Graph, order: NDArray[np.int32]) -> Graph:
    """Return the graph with its ops in `order`, a permutation that respects all dependencies; buffers stay as they are.

    Raises GraphError when the order breaks a control edge or reads what is not written yet. O(n + e).
    """
    reordered = permute_ops(graph, order)
    check_graph(reordered)
    return reordered
