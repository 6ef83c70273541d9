"""What the program is: ops, buffers, memory spaces, and the dependencies between ops."""

from lowtide.graph.builder import GraphBuilder
from lowtide.graph.file_format import graph_schema, read_graph_file, write_graph_file
from lowtide.graph.graph import Graph
from lowtide.graph.lifetime import Lifetime
from lowtide.graph.op import Op
from lowtide.graph.rows import Rows
from lowtide.graph.space import Space
from lowtide.graph.text import format_graph

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
