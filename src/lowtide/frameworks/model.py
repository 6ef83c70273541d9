"""The interface between the planner and a framework: read a program, apply a plan, measure both.

A framework subclasses `Model` and overrides the methods it supports. The defaults answer for programs that can only be
planned: nothing is written, run or compiled, and each message names the way out.
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
        """Endings of the files that `save` writes; empty if it writes none."""
        return ()

    @abstractmethod
    def apply(self, plan: Plan) -> Any:
        """Return the framework's own kind of program that follows the plan; raises PlanError or UnsupportedError."""

    def planned(self, settings: PlanSettings, progress: Report | None = None, keep: Keep | None = None) -> Result:
        """Return the best verified plan of the program; see `plan_with_state`."""
        return plan_with_state(self, settings, progress, keep)

    @property
    def on_device(self) -> OnDevice | None:
        """Figures of a program that was lowered for an absent device, or None."""
        return None

    @property
    def recorded(self) -> tuple[Recorded, ...]:
        """The peak of each device of a recording; empty for programs."""
        return ()

    @property
    def as_it_runs(self) -> tuple[Graph, Plan]:
        """The graph of the program as it runs without a plan, and that run in the form of a plan."""
        return self.graph, Plan.baseline(self.graph)

    def save(self, plan: Plan, path: Path) -> None:
        """Write the program that follows the plan to a file; raises UnsupportedError if there is no such file."""
        self.apply(plan)
        raise UnsupportedError(f"this program cannot be written to {path}; write a plan file (.plan.json)")

    def save_unmodified(self, path: Path) -> None:
        """Write the program as it was read."""
        raise UnsupportedError(f"this program cannot be written to {path}; copy the file it was read from")

    @property
    def takes_notes(self) -> bool:
        """Whether files of this program have room for notes on each node."""
        return False

    def save_annotated(self, plan: Plan, path: Path) -> None:
        """Write the same as `save`, with the plan's notes on each node; raises the same errors."""
        raise UnsupportedError(f"{path} has no room for notes; leave out --annotate")

    def check_measurable(self) -> None:
        """Raise UnsupportedError if the program cannot run, before time is spent on a plan."""

    @abstractmethod
    def measure(self, plan: Plan) -> Measurement:
        """Run the unmodified and the planned program from the same inputs and state.

        Raises PlanError for a wrong plan, UnsupportedError if the program cannot run.
        """

    @abstractmethod
    def measure_costs(self) -> Prices:
        """Run every op on its own and return its time; raises UnsupportedError if that is impossible."""

    def with_host(self, host: Host) -> "Model":
        """Return the program with a host that its plans may copy to."""
        return HostedModel(self, host)

    def reason_to_keep(self, plan: Plan, allowed_bytes: int | None, measured: Measurement | None) -> str | None:
        """Return in one sentence why the program is better off without the plan; None if the plan helps.

        Only programs whose runtime chooses a good order itself have such reasons. `allowed_bytes` is the limit of the
        first memory space. Measured peaks count before simulated ones.
        """
        return None

    def rewritten(self, level: str, devices: Mapping[str, str]) -> Rewritten:
        """Return the program after a level of the framework's own optimizer; `devices` are memory sizes by name.

        Raises UsageError for an unknown level or device, and for a framework without levels.
        """
        raise UsageError(
            f"{self.graph.name!r} has no levels, which TensorFlow and ONNX Runtime have; leave out --level"
        )

    @property
    def is_reordered_by_runtime(self) -> bool:
        """Whether a runtime optimizes and orders the program itself before it runs it."""
        return False

    @property
    def level(self) -> str | None:
        """The level of the runtime's optimizations that the program already contains; None for a program as given."""
        return None

    def optimized(self, level: str | None, *, for_this_machine: bool = False) -> "Model":
        """Return the program as its runtime would run it at a level, by default the highest with equal bits anywhere.

        `for_this_machine` is the last level, which may be for one kind of processor. Raises UsageError for an unknown
        level, UnsupportedError for a program that the runtime does not load.
        """
        return self

    @property
    def is_faster_here(self) -> bool:
        """Whether `optimized` left out a faster form, because it is for one kind of processor."""
        return False

    def runtime_peaks(self, plan: Plan) -> RuntimePeaks | None:
        """Return the peaks of the unmodified and the planned program in the runtime's own order, if it has one."""
        return None

    def runtime_runs(self, plan: Plan) -> Sequence[RuntimeRun]:
        """Run the unmodified and the planned program in the stock runtime; raises UnsupportedError, PlanError."""
        return ()

    def compiled(self) -> object | None:
        """Compile the program and return the compiler's own program; None for a framework without a compiler."""
        return None

    def compiled_memory(self, plan: Plan) -> Sequence[CompiledMemory]:
        """Compile the unmodified and the planned program, run both, and return their memory; raises PlanError."""
        return ()

    def reserved(self) -> Reserved | None:
        """Return the bytes that the framework reserved for the program; None if it did not report them."""
        return None


def is_model(source: object) -> TypeGuard[Model]:
    """Return whether `source` is a `Model`."""
    return isinstance(source, Model)


class UnrunnableModel(Model):
    """A program that can be planned and reordered, but not run."""

    KIND: ClassVar[str]
    """The kind of program in messages: "a graph file"."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def graph(self) -> Graph:
        """The graph of the program."""
        return self._graph

    def check_measurable(self) -> NoReturn:
        """Raise UnsupportedError: there are no kernels to run."""
        raise UnsupportedError(f"{self.KIND} cannot be run, so there is nothing to measure; leave out --measure")

    def measure(self, plan: Plan) -> Measurement:
        """Raise UnsupportedError: there are no kernels to run."""
        self.check_measurable()

    def measure_costs(self) -> Prices:
        """Raise UnsupportedError: there are no kernels to run."""
        raise UnsupportedError(f"{self.KIND} has no kernels to run; price it by a profile, --costs eager or fused")

    def order_of(self, plan: Plan) -> NDArray[np.int32]:
        """Return the order of a plan, each op once.

        Raises PlanError for a plan that is wrong for this graph, UnsupportedError for one that recomputes ops.
        """
        verify(self._graph, plan, check_capacity=False)
        order = plan.order()
        if len(order) != self._graph.n_ops or len(np.unique(order)) != len(order):
            raise UnsupportedError(
                f"the plan runs some ops twice, which {self.KIND} cannot express; write a plan file (.plan.json)"
            )
        return order


class HostedModel(Model):
    """A program and a host, for frameworks that cannot copy by a plan: plans go to plan files only."""

    def __init__(self, model: Model, host: Host) -> None:
        self._model = model
        self._graph = host.added_to(model.graph)

    @property
    def graph(self) -> Graph:
        """The graph of the program with its host."""
        return self._graph

    def apply(self, plan: Plan) -> NoReturn:
        """Raise UnsupportedError: this framework cannot copy to a host by a plan."""
        raise UnsupportedError("this framework cannot copy to a host by a plan; write a plan (.plan.json)")

    def measure(self, plan: Plan) -> Measurement:
        """Raise UnsupportedError, as `apply` does."""
        self.apply(plan)

    def measure_costs(self) -> Prices:
        """Return the times of the program's ops; a host does not change them."""
        return self._model.measure_costs()
