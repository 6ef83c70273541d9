"""The program as data: ops, buffers, memory spaces, and the dependences between ops.

A graph of a million ops is a dozen NumPy arrays in compressed rows, which native kernels use without copying.
`graph.op(i)` creates an object on request. Files are read and written in pieces of some thousand records, so that
objects for all records never exist at the same time.

A graph has no tensors, only storage. A reader of a framework maps every tensor to the buffer that stores it, and a view
to its base; it keeps this map to apply a plan later.

Dependences are derived, not declared. The builder records what each op reads, writes and mutates, in program order, and
`derive_structure` adds data, anti- and output dependences, control edges and the order of effects in one linear pass.

The peak of a graph that an op calls counts as scratch of that op. For a while, call or conditional it includes the
result of the op, which is the root of the body. Buffers that a callee borrows from its caller are persistent in the
callee, so that they are counted once.
"""

from lowtide.engine.graph.builder import GraphBuilder
from lowtide.engine.graph.file_format import graph_schema, read_graph_file, write_graph_file
from lowtide.engine.graph.graph import Graph, Lifetime, Space
from lowtide.engine.graph.op import Op
from lowtide.engine.graph.rows import Rows
from lowtide.engine.graph.text import format_graph

__all__ = [
    "Graph",
    "GraphBuilder",
    "Lifetime",
    "Op",
    "Rows",
    "Space",
    "format_graph",
    "graph_schema",
    "read_graph_file",
    "write_graph_file",
]
