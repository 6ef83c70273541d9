"""Graphs without a framework: graph files, and graphs built in Python."""

from pathlib import Path

from lowtide.engine.graph import Graph, read_graph_file, write_graph_file
from lowtide.engine.graph.execution import reorder_graph
from lowtide.engine.plan import Plan
from lowtide.frameworks.model import UnrunnableModel


class GraphModel(UnrunnableModel):
    """A bare graph, to plan and reorder but not run."""

    KIND = "a graph file"

    @property
    def file_endings(self) -> tuple[str, ...]:
        return (".graph.json", ".graph.json.gz")

    def apply(self, plan: Plan) -> Graph:
        """Return the graph in the plan's order. Raises errors of `order_of`."""
        return reorder_graph(self.graph, self.order_of(plan))

    def save(self, plan: Plan, path: Path) -> None:
        write_graph_file(self.apply(plan), path)


def open_graph_file(path: str | Path) -> GraphModel:
    """Open a graph file. Raises InputError."""
    return GraphModel(read_graph_file(path))
