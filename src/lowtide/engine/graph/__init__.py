"""The program as data: ops, buffers, memory spaces, and the dependences between ops.

A graph of a million ops is a dozen NumPy arrays, which native kernels use without copying. It has no tensors: a
framework's reader maps every tensor, views included, to a buffer.

The peak of a callee counts as scratch of its op. Buffers that it borrows are persistent in it, so they count once.
"""

from lowtide.engine.graph.builder import GraphBuilder
from lowtide.engine.graph.file_format import graph_schema, read_graph_file, write_graph_file
from lowtide.engine.graph.graph import (
    COPYING_KINDS,
    GRADIENT_FROM_HOST,
    OPERAND_TO_HOST,
    PARAMETER_FROM_HOST,
    PARAMETER_TO_DEVICE,
    STATE_TO_DEVICE,
    STATE_TO_HOST,
    UPDATE_ON_HOST,
    Graph,
    Lifetime,
    Mask,
    Space,
)
from lowtide.engine.graph.op import Op
from lowtide.engine.graph.rows import Rows

__all__ = [
    "COPYING_KINDS",
    "GRADIENT_FROM_HOST",
    "OPERAND_TO_HOST",
    "PARAMETER_FROM_HOST",
    "PARAMETER_TO_DEVICE",
    "STATE_TO_DEVICE",
    "STATE_TO_HOST",
    "UPDATE_ON_HOST",
    "Graph",
    "GraphBuilder",
    "Lifetime",
    "Mask",
    "Op",
    "Rows",
    "Space",
    "graph_schema",
    "read_graph_file",
    "write_graph_file",
]
