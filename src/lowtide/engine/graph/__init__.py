"""What the program is: ops, buffers, memory spaces, and the dependencies between ops."""

from lowtide.engine.graph.builder import GraphBuilder
from lowtide.engine.graph.file_format import graph_schema, read_graph_file, write_graph_file
from lowtide.engine.graph.graph import Graph
from lowtide.engine.graph.lifetime import Lifetime
from lowtide.engine.graph.op import Op
from lowtide.engine.graph.rows import Rows
from lowtide.engine.graph.space import Space
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
