"""The interface between the planner and a framework: read a program, apply a plan, measure both.

A framework overrides the methods it supports. By default, programs can only be planned.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeGuard

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.core.progress import Report
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan, verify
from lowtide.engine.planning.draft import Keep
from lowtide.engine.planning.measured import (
    CompiledMemory,
    Measurement,
    Reserved,
    Rewritten,
    RuntimePeaks,
    RuntimeRun,
)
from lowtide.engine.planning.plan_state import plan_with_state
from lowtide.engine.planning.program import Program
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.on_device import OnDevice
from lowtide.reporting.recorded import Recorded


class Model(Program):
    """A program of a framework, read once."""

    @property
    def file_endings(self) -> tuple[str, ...]:
        """Of the files that `save` writes; empty if none."""
        return ()

    @abstractmethod
    def apply(self, plan: Plan) -> Any:
        """Return the framework's kind of program, following the plan. Raises PlanError or UnsupportedError."""

    def planned(self, settings: PlanSettings, progress: Report | None = None, keep: Keep | None = None) -> Result:
        """Return the best verified plan; see `plan_with_state`."""
        return plan_with_state(self, settings, progress, keep)

    @property
    def on_device(self) -> OnDevice | None:
        """Figures of a program for an absent device."""
        return None

    @property
    def recorded(self) -> tuple[Recorded, ...]:
        """Of each device of a recording; empty for programs."""
        return ()

    @property
    def as_it_runs(self) -> tuple[Graph, Plan]:
        """The graph as it runs without a plan, with that run as a plan."""
        return self.graph, Plan.baseline(self.graph)

    def save(self, plan: Plan, path: Path) -> None:
        """Write the planned program. Raises UnsupportedError if it has no file."""
        self.apply(plan)
        raise UnsupportedError(f"this program cannot be written to {path}; write a plan file (.plan.json)")

    def save_unmodified(self, path: Path) -> None:
        """Write the program as it was read."""
        raise UnsupportedError(f"this program cannot be written to {path}; copy the file it was read from")

    @property
    def takes_notes(self) -> bool:
        """Whether files can hold notes on nodes."""
        return False

    def save_annotated(self, plan: Plan, path: Path) -> None:
        """Write like `save`, with the plan's notes on nodes."""
        raise UnsupportedError(f"{path} has no room for notes; leave out --annotate")

    def check_measurable(self) -> None:
        """Raise UnsupportedError if the program cannot run, before planning."""

    @abstractmethod
    def measure(self, plan: Plan) -> Measurement:
        """Run the unmodified and planned program from the same inputs and state.

        Raises PlanError for a wrong plan, UnsupportedError if the program cannot run.
        """

    @abstractmethod
    def measure_costs(self) -> Prices:
        """Run each op alone and return its time. Raises UnsupportedError."""

    def with_host(self, host: Host) -> "Model":
        """Return the program with a host for copies."""
        return HostedModel(self, host)

    def reason_to_keep(self, plan: Plan, allowed_bytes: int | None, measured: Measurement | None) -> str | None:
        """Return in one sentence why the program is better without the plan; None if the plan helps.

        Only programs whose runtime finds a good order have reasons. Measured peaks count before simulated ones.
        """
        return None

    def rewritten(self, level: str, devices: Mapping[str, str]) -> Rewritten:
        """Return the program after a level of the framework's optimizer; `devices` are memory sizes by name.

        Raises UsageError for an unknown level or device, or a framework without levels.
        """
        raise UsageError(
            f"{self.graph.name!r} has no levels, which TensorFlow and ONNX Runtime have; leave out --level"
        )

    @property
    def is_reordered_by_runtime(self) -> bool:
        """Whether a runtime optimizes and orders the program first."""
        return False

    @property
    def level(self) -> str | None:
        """Of runtime optimizations already in the program, if any."""
        return None

    def optimized(self, level: str | None, *, for_this_machine: bool = False) -> "Model":
        """Return the program as its runtime runs it at a level, by default the highest with equal bits anywhere.

        The last level (`for_this_machine`) may suit one kind of processor only. Raises UsageError for an unknown level,
        UnsupportedError if the runtime does not load the program.
        """
        return self

    @property
    def is_faster_here(self) -> bool:
        """Whether `optimized` left out a faster form for one kind of processor."""
        return False

    def runtime_peaks(self, plan: Plan) -> RuntimePeaks | None:
        """Return the unmodified and planned peaks in the runtime's order, if any."""
        return None

    def runtime_runs(self, plan: Plan) -> Sequence[RuntimeRun]:
        """Run the unmodified and planned program in the stock runtime. Raises UnsupportedError, PlanError."""
        return ()

    def compiled(self) -> object | None:
        """Return the compiler's own program; None without a compiler."""
        return None

    def compiled_memory(self, plan: Plan) -> Sequence[CompiledMemory]:
        """Return the memory of the unmodified and planned program, compiled and run. Raises PlanError."""
        return ()

    def reserved(self) -> Reserved | None:
        """Return the bytes that the framework reserved, if reported."""
        return None


def is_model(source: object) -> TypeGuard[Model]:
    return isinstance(source, Model)


class UnrunnableModel(Model):
    """A program to plan and reorder, but not run."""

    KIND: ClassVar[str]

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def graph(self) -> Graph:
        return self._graph

    def check_measurable(self) -> NoReturn:
        raise UnsupportedError(f"{self.KIND} cannot be run, so there is nothing to measure; leave out --measure")

    def measure(self, plan: Plan) -> Measurement:
        self.check_measurable()

    def measure_costs(self) -> Prices:
        raise UnsupportedError(f"{self.KIND} has no kernels to run; price it by a profile, --costs eager or fused")

    def order_of(self, plan: Plan) -> NDArray[np.int32]:
        """Return a plan's order. Raises PlanError for a wrong plan, UnsupportedError if it recomputes ops."""
        verify(self._graph, plan, check_capacity=False)
        order = plan.order()
        if len(order) != self._graph.n_ops or len(np.unique(order)) != len(order):
            raise UnsupportedError(
                f"the plan runs some ops twice, which {self.KIND} cannot express; write a plan file (.plan.json)"
            )
        return order


class HostedModel(Model):
    """A program and a host, for frameworks that cannot copy: plans go to plan files only."""

    def __init__(self, model: Model, host: Host) -> None:
        self._model = model
        self._graph = host.added_to(model.graph)

    @property
    def graph(self) -> Graph:
        return self._graph

    def apply(self, plan: Plan) -> NoReturn:
        raise UnsupportedError("this framework cannot copy to a host by a plan; write a plan (.plan.json)")

    def measure(self, plan: Plan) -> Measurement:
        self.apply(plan)

    def measure_costs(self) -> Prices:
        return self._model.measure_costs()
