"""A program and a host, where the framework cannot carry out copies: plans go to plan files only."""

from pathlib import Path
from typing import NoReturn

from lowtide.core.errors import UnsupportedError
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan
from lowtide.frameworks.model import Measurement, Model


class PlanFilesOnly:
    """A program and a host, to plan for: nothing but a plan file can hold what such a plan says."""

    file_endings: tuple[str, ...] = ()

    def __init__(self, model: Model, host: Host) -> None:
        self._model = model
        self._graph = host.added_to(model.graph)

    @property
    def graph(self) -> Graph:
        """The program and its host as a graph."""
        return self._graph

    @property
    def in_chunks(self) -> None:
        """None: tensors are copied to a host whole."""
        return None

    @property
    def chunks_take_time(self) -> bool:
        """False: there are none."""
        return False

    def apply(self, plan: Plan) -> NoReturn:
        """Raise UnsupportedError: this framework cannot copy to a host by a plan."""
        raise UnsupportedError("this framework cannot copy to a host by a plan; write a plan (.plan.json)")

    def save(self, plan: Plan, path: Path) -> None:
        """Raise UnsupportedError, as `apply` does."""
        self.apply(plan)

    def measure(self, plan: Plan) -> Measurement:
        """Raise UnsupportedError, as `apply` does."""
        return self.apply(plan)

    def measure_costs(self) -> Prices:
        """Return what the program's ops take; the host changes nothing about that."""
        return self._model.measure_costs()
