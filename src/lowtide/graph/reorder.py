"""The same program in another order."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lowtide.graph.check import check_graph
from lowtide.graph.graph import Graph
from lowtide.graph.rows import Rows


def reorder_graph(graph: Graph, order: NDArray[np.int32]) -> Graph:
    """Return the graph with its ops in `order`, a permutation that respects all dependencies; buffers stay as they are.

    Raises GraphError when the order breaks a control edge or reads what is not written yet. O(n + e).
    """
    place = np.empty(graph.n_ops, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    after = graph.after.take(order)
    reordered = replace(
        graph,
        op_names=[graph.op_names[op] for op in order.tolist()],
        op_kinds=[graph.op_kinds[op] for op in order.tolist()],
        reads=graph.reads.take(order),
        writes=graph.writes.take(order),
        mutates=graph.mutates.take(order),
        after=Rows(after.offsets, place[after.values]),
        in_place=graph.in_place.take(order),
        scratch=graph.scratch[order],
        pure=graph.pure[order],
        ordered=graph.ordered[order],
        cost=graph.cost[order],
        callees=[graph.callees[op] for op in order.tolist()],
        devices=[graph.devices[op] for op in order.tolist()],
    )
    check_graph(reordered)
    return reordered
