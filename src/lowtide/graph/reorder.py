"""The same program in another order."""

import numpy as np
from numpy.typing import NDArray

from lowtide.graph.builder import GraphBuilder
from lowtide.graph.graph import Graph
from lowtide.graph.lifetime import Lifetime


def reorder_graph(graph: Graph, order: NDArray[np.int32]) -> Graph:
    """Return the graph with its ops in `order`, a permutation that respects all dependencies; buffers stay as they are.

    Raises GraphError when the order breaks a dependency.
    """
    builder = GraphBuilder(graph.name)
    for name, subgraph in graph.subgraphs.items():
        builder.add_subgraph(name, subgraph)
    for space in graph.spaces:
        builder.add_space(
            space.name,
            capacity_bytes=space.capacity_bytes,
            alignment=space.alignment,
            bandwidth_bytes_per_s=space.bandwidth_bytes_per_s,
        )
    for buffer in map(graph.buffer, range(graph.n_buffers)):
        builder.add_buffer(buffer.name, buffer.size_bytes, Lifetime(buffer.lifetime), space=buffer.space)
    place = np.empty(graph.n_ops, np.int64)
    place[order] = np.arange(len(order))
    for op in map(graph.op, order.tolist()):
        builder.add_op(
            op.name,
            op.kind,
            reads=op.reads,
            writes=op.writes,
            mutates=op.mutates,
            after=place[list(op.after)].tolist(),
            in_place=op.in_place,
            scratch_bytes=op.scratch_bytes,
            pure=op.pure,
            ordered=op.ordered,
            cost=op.cost,
            callees=op.callees,
            device=op.device,
        )
    for sentence in graph.unmodeled:
        builder.note(sentence)
    return builder.build()
