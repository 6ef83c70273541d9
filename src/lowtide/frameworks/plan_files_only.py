"""A program with a host, for frameworks without copies to a host: plans are written to plan files only."""

from pathlib import Path
from typing import NoReturn

from lowtide.core.errors import UnsupportedError
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan
from lowtide.frameworks.model import Measurement, Model


class PlanFilesOnly:
    """A program with a host to plan for. Only plan files can contain its plans."""

    file_endings: tuple[str, ...] = ()

    def __init__(self, model: Model, host: Host) -> None:
        self._model = model
        self._graph = host.added_to(model.graph)

    @property
    def graph(self) -> Graph:
        """The program with its host as a graph."""
        return self._graph

    @property
    def in_chunks(self) -> None:
        """None: chunking is not supported with a host."""
        return None

    @property
    def chunks_take_time(self) -> bool:
        """False: chunking is not supported with a host."""
        return False

    def apply(self, plan: Plan) -> NoReturn:
        """Raise UnsupportedError, because this framework has no copies to a host."""
        raise UnsupportedError("this framework cannot copy to a host; write a plan file (.plan.json)")

    def save(self, plan: Plan, path: Path) -> None:
        """Raise UnsupportedError, as `apply` does."""
        self.apply(plan)

    def measure(self, plan: Plan) -> Measurement:
        """Raise UnsupportedError, as `apply` does."""
        return self.apply(plan)

    def measure_costs(self) -> Prices:
        """Return the program's prices, which are independent of the host."""
        return self._model.measure_costs()
