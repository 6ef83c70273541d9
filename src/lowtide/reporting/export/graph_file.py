"""A program as a graph file: what it was, for a later `lowtide diff` or `lowtide check --against`."""

from lowtide.engine.graph import Graph
from lowtide.engine.graph.file_format import graph_document
from lowtide.engine.plan import Plan


def graph_file(graph: Graph, _plan: Plan) -> bytes:
    """Return a graph file of the program as it stands; the plan changes nothing of it."""
    return graph_document(graph)
