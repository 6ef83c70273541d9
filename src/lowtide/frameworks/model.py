"""What every framework offers: a model that gives its graph, takes a plan back, and can be measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lowtide.costs import Prices
from lowtide.graph import Graph
from lowtide.offload import Host
from lowtide.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A program run for real, as it stands and under a plan, from the same state."""

    before_bytes: int
    """Peak of live tensor bytes of the untouched program, persistent ones left out."""
    after_bytes: int
    """The same under the plan."""
    outputs_equal: bool
    """Whether all results and updated state agree bit for bit."""
    original_bytes: int | None = None
    """Peak of the user's own call, where that is not the program `before_bytes` measures (eager PyTorch)."""
    host_bytes: int | None = None
    """Peak of what the plan's copies hold on the host; None where the program has none beside it."""


class Model(Protocol):
    """A program of some framework, read once."""

    @property
    def file_endings(self) -> tuple[str, ...]:
        """How names of files that `save` writes may end; empty where it writes none."""
        ...

    @property
    def graph(self) -> Graph:
        """The program as a graph."""
        ...

    @property
    def in_pieces(self) -> Graph | None:
        """The program with its largest tensors computed in pieces, None where that could not lower any peak.

        Plans for this graph are applied, saved and measured as those for `graph` are.
        """
        ...

    def apply(self, plan: Plan) -> Any:
        """Return the framework's own kind of program that follows the plan; raises PlanError or UnsupportedError."""
        ...

    def save(self, plan: Plan, path: Path) -> None:
        """Write the program that follows the plan to a file; raises UnsupportedError where there is no such file."""
        ...

    def measure(self, plan: Plan) -> Measurement:
        """Run the program as it stands and under the plan; raises UnsupportedError where it cannot run."""
        ...

    def measure_costs(self) -> Prices:
        """Run every op alone and return what it takes here; raises UnsupportedError where that is not possible."""
        ...


@runtime_checkable
class TakesHost(Protocol):
    """A program whose framework copies to a host where a plan says so."""

    def beside(self, host: Host) -> Model:
        """Return the program with a host that its plans may copy to."""
        ...
