"""Programs with forms in chunks, given as graphs."""

from lowtide.engine.graph import Graph
from lowtide.engine.planning.program import Form, FormName, Program


class GivenProgram(Program):
    """A program whose forms are given; `made` notes which were asked for."""

    def __init__(self, graph: Graph, chunked: Graph | None = None, rounded: Graph | None = None) -> None:
        self._graph, self.chunked, self.rounded = graph, chunked, rounded
        self.made: list[tuple[FormName, bool]] = []

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def has_rounded_forms(self) -> bool:
        return self.rounded is not None

    def make_form(self, name: FormName, *, exact: bool) -> Form | None:
        self.made.append((name, exact))
        graph = self.chunked if exact else self.rounded
        return None if graph is None or name != "in chunks" else Form(name, graph, exact)
