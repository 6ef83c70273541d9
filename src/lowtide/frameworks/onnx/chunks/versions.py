"""A model and the same in chunks: which versions there are, and which of them a plan is for."""

from collections.abc import Callable
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.frameworks.onnx.chunks.choose import COARSE, FINE, Fineness


class HasGraph(Protocol):
    """What has a graph."""

    @property
    def graph(self) -> Graph:
        """The graph."""
        ...


Version = TypeVar("Version", bound=HasGraph)


class ChunkedVersions(Generic[Version]):
    """The versions of a model in chunks, each made when somebody first asks for it."""

    def __init__(self, cut: Callable[[Fineness], Version | None]) -> None:
        """Take what makes a version, None where chunks do not help."""
        self._cut = cut

    @cached_property
    def coarse(self) -> Version | None:
        """In few chunks."""
        return self._cut(COARSE)

    @cached_property
    def fine(self) -> Version | None:
        """In as many as still help; None where the coarse one has as many."""
        found = None if self.coarse is None else self._cut(FINE)
        same = found is None or self.coarse is None or found.graph.fingerprint == self.coarse.graph.fingerprint
        return None if same else found

    def planned_by(self, plan: Plan) -> Version | None:
        """Return the version that a plan is for, None where it is for neither."""
        if self.coarse is not None and plan.graph_fingerprint == self.coarse.graph.fingerprint:
            return self.coarse
        if self.fine is not None and plan.graph_fingerprint == self.fine.graph.fingerprint:
            return self.fine
        return None
