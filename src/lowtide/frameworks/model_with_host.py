"""A host beside programs whose framework copies nothing: they can be planned, and their plans go to plan files."""

from pathlib import Path
from typing import NoReturn

from lowtide.costs import Prices
from lowtide.errors import UnsupportedError
from lowtide.frameworks.model import Measurement, Model
from lowtide.graph import Graph
from lowtide.offload import Host
from lowtide.plan import Plan


class ModelWithHost:
    """A program with a host beside it: plans for it copy, so they go to plan files and nowhere else."""

    file_endings: tuple[str, ...] = ()

    def __init__(self, model: Model, host: Host) -> None:
        self._model = model
        self._graph = host.beside(model.graph)

    @property
    def graph(self) -> Graph:
        """The program and its host as a graph."""
        return self._graph

    @property
    def in_pieces(self) -> None:
        """None: with a host, tensors travel whole."""
        return None

    def apply(self, plan: Plan) -> NoReturn:
        """Raise UnsupportedError: this framework cannot copy to a host by a plan."""
        raise UnsupportedError("copies to a host are carried out in PyTorch programs only; write a plan (.plan.json)")

    def save(self, plan: Plan, path: Path) -> None:
        """Raise UnsupportedError, as `apply` does."""
        self.apply(plan)

    def measure(self, plan: Plan) -> Measurement:
        """Raise UnsupportedError, as `apply` does."""
        return self.apply(plan)

    def measure_costs(self) -> Prices:
        """Return what the program's ops take; the host changes nothing about that."""
        return self._model.measure_costs()
