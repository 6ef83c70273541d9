"""Graphs without a framework: graph files, and graphs built in Python."""

from pathlib import Path

import numpy as np

from lowtide.costs import Prices
from lowtide.errors import UnsupportedError
from lowtide.frameworks.model import Measurement
from lowtide.graph import Graph, read_graph_file, write_graph_file
from lowtide.graph.reorder import reorder_graph
from lowtide.plan import Plan, verify


class GraphModel:
    """A bare graph: it can be planned and reordered, but there is nothing to run."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def file_endings(self) -> tuple[str, ...]:
        """How names of graph files end."""
        return (".graph.json", ".graph.json.gz")

    @property
    def graph(self) -> Graph:
        """The graph itself."""
        return self._graph

    @property
    def in_chunks(self) -> None:
        """None: a bare graph does not say how to compute a part of a tensor."""
        return None

    def apply(self, plan: Plan) -> Graph:
        """Return the graph with its ops in the plan's order.

        Raises PlanError for a plan that is wrong for this graph, UnsupportedError for one that repeats ops.
        """
        verify(self._graph, plan, check_capacity=False)
        order = plan.order()
        if len(order) != self._graph.n_ops or len(np.unique(order)) != len(order):
            raise UnsupportedError("the plan runs some ops twice, which a graph file cannot say; write a plan file")
        return reorder_graph(self._graph, order)

    def save(self, plan: Plan, path: Path) -> None:
        """Write the reordered graph as a graph file."""
        write_graph_file(self.apply(plan), path)

    def measure(self, plan: Plan) -> Measurement:
        """Raise UnsupportedError: a bare graph has no kernels to run."""
        raise UnsupportedError("a graph file cannot be run, so there is nothing to measure; leave out --measure")

    def measure_costs(self) -> Prices:
        """Raise UnsupportedError: a bare graph has no kernels to run."""
        raise UnsupportedError("a graph file has no kernels to run; price it by a profile, --costs eager or fused")


def open_graph_file(path: str | Path) -> GraphModel:
    """Open a graph file; raises InputError and its kinds."""
    return GraphModel(read_graph_file(path))
