"""What every framework offers: a model that gives its graph, takes a plan back, and can be measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable

from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A program run for real, as it stands and under a plan, from the same state."""

    before_bytes: int
    """Peak of live tensor bytes of the untouched program, without persistent tensors."""
    after_bytes: int
    """The same under the plan."""
    outputs_equal: bool
    """Whether all results and updated state agree bit for bit."""
    largest_difference: float | None = None
    """Where a plan is equal to rounding alone and bits differ: the largest difference of two numbers, as a share of the
    largest of their tensor; 1 where something differs that is no number. None elsewhere."""
    outputs_near: bool = False
    """Whether that is no more than rounding: the square root of the least difference that the type tells from 1, or
    what the last digits of all inputs change in the program as it stands, times a number."""
    original_bytes: int | None = None
    """Peak of the user's own call, where that is another program than the one of `before_bytes`: eager PyTorch."""
    host_bytes: int | None = None
    """Peak of what the plan's copies hold on the host; None for a program without a host."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why two figures differ, and by how much."""

    reason: str
    extra_bytes: int
    """What it adds to the framework's figure; less than 0 where it adds to the model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """The bytes that a framework itself reserved for a program, beside the model's peak for the same order."""

    by: str
    """Whose figure it is: "XLA's buffer assignment"."""
    reserved_bytes: int
    """All that stands beside the model's peak."""
    temporary_bytes: int
    """The part of it that the framework calls temporary."""
    peak_bytes: int
    """The model's peak in the order of the program, in-place pairs taken."""
    differences: tuple[Difference, ...]
    """Why they differ; together they are `reserved_bytes - peak_bytes`."""


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
    def in_chunks(self) -> Graph | None:
        """The program with its largest tensors computed in chunks, None where that could not lower any peak.

        Plans for this graph are applied, saved and measured as those for `graph` are.
        """
        ...

    @property
    def chunks_take_time(self) -> bool:
        """Whether chunks may make the program slower, so that only a budget asks for them."""
        ...

    def apply(self, plan: Plan) -> Any:
        """Return the framework's own kind of program that follows the plan; raises PlanError or UnsupportedError."""
        ...

    def save(self, plan: Plan, path: Path) -> None:
        """Write the program that follows the plan to a file; raises UnsupportedError where there is no such file."""
        ...

    def measure(self, plan: Plan) -> Measurement:
        """Run the program as it stands and under the plan, from the same inputs and state.

        Raises PlanError for a wrong plan, UnsupportedError where the program cannot run.
        """
        ...

    def measure_costs(self) -> Prices:
        """Run every op alone and return the seconds it takes here; raises UnsupportedError where that is impossible."""
        ...


def is_model(source: object) -> TypeGuard[Model]:
    """Tell whether an object is a model, by its class alone: nothing is read for that."""
    return all(hasattr(type(source), name) for name in ("graph", "in_chunks", "apply", "save", "measure"))


@runtime_checkable
class MayNotRun(Protocol):
    """A program that cannot always be run, which can be told before a plan is made."""

    def check_measurable(self) -> None:
        """Raise UnsupportedError where the program cannot be run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRun:
    """What a program takes in a process of its own."""

    by: str
    """What ran it, and how."""
    growth_bytes: int | None
    """The most that runs added to resident memory, weights, inputs and code apart; None where the system is silent."""
    resident_bytes: int | None = None
    """The most that the whole process had resident, with all of these; None where the system is silent."""
    predicted_bytes: int | None = None
    """What `growth_bytes` was predicted to be; None where nothing was."""
    otherwise_predicted_bytes: int | None = None
    """The same where the system chooses addresses otherwise; None where these make no difference."""
    seconds: float
    """The median of a run."""
    arena_bytes: int | None = None
    """What was reserved for the values of a run, where that is known."""
    fallbacks: int = 0
    """Runs that did not find their values at planned addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePeaks:
    """What a program needs where its runtime runs it in an order of its own, and not in the program's."""

    by: str
    """Whose order it is."""
    before_bytes: int
    """Peak of live tensor bytes of the program as it stands."""
    after_bytes: int
    """The same of the program that follows a plan."""
    before_resident_bytes: int
    """What runs of the program as it stands would add to resident memory, with all that the runtime does about it."""
    after_resident_bytes: int
    """The same of the program that follows a plan."""
    unmodeled: tuple[str, ...]
    """What that leaves out, a phrase each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A program after the framework's own kind of optimization at a level."""

    before_bytes: Mapping[str, int]
    """The framework's estimate of the peak by device."""
    after_bytes: Mapping[str, int]
    """The same afterwards."""
    done: Mapping[str, Sequence[str]]
    """What was done to which parts of the program, by names: "recomputed" and so on."""
    write: Callable[[Path], None]
    """Write the program to a file."""


@runtime_checkable
class HasLevels(Protocol):
    """A program whose framework has levels of memory optimization of its own."""

    def rewritten(self, level: str, devices: Mapping[str, str]) -> Rewritten:
        """Return the program at a level, with what devices hold; raises UsageError for an unknown level or device."""
        ...


@runtime_checkable
class OrdersItself(Protocol):
    """A program whose runtime orders what nobody orders, often well: a plan is applied only where it helps."""

    def as_good_as(self, plan: Plan, allowed_bytes: int | None, measured: Measurement | None) -> str | None:
        """Return in one sentence why the program needs no plan; None where the plan helps.

        `allowed_bytes` is what the first memory space may hold. What was measured counts before what is simulated.
        """
        ...

    def save_as_it_stands(self, path: Path) -> None:
        """Write the program as it was read."""
        ...


@runtime_checkable
class RunByRuntime(Model, Protocol):
    """A program that a runtime optimizes and orders by itself, before it runs it."""

    @property
    def level(self) -> str | None:
        """How far the runtime's optimizations are part of the program already; None for a program as it was given."""
        ...

    @property
    def left_whole(self) -> Sequence[str]:
        """What is not computed in chunks because that failed when it was tried, a sentence each.

        Only the search for chunks tells; where nobody asked for `in_chunks`, nothing is said.
        """
        ...

    def optimized(self, level: str | None) -> "RunByRuntime":
        """Return the program as the runtime would run it at a level, by default the highest that keeps all bits.

        Raises UsageError for an unknown level, UnsupportedError for a program that the runtime does not load.
        """
        ...

    def runtime_peaks(self, plan: Plan) -> RuntimePeaks:
        """Return what the program and the planned one need in the runtime's own order; raises PlanError."""
        ...

    def runtime_runs(self, plan: Plan) -> Sequence[RuntimeRun]:
        """Run the program in the stock runtime, and the planned one; raises UnsupportedError, PlanError."""
        ...


@runtime_checkable
class TakesNotes(Protocol):
    """A program whose file has room for what a plan says of each part of it."""

    def save_annotated(self, plan: Plan, path: Path) -> None:
        """Write what `save` writes, and what the plan says of its parts; raises what `save` raises."""
        ...


@runtime_checkable
class KnowsReserved(Protocol):
    """A program of which the framework itself may have said what it reserves."""

    def reserved(self) -> Reserved | None:
        """Return that beside the model's figure, None where nobody said."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMemory:
    """What a program takes once a compiler made one function of it: a prediction, and who else says how much."""

    name: str
    """Which program: as it stands, or planned."""
    predicted_bytes: int
    """Peak under the model, arguments and results included."""
    total_bytes: int
    """What the compiler says for arguments, results and temporaries."""
    temp_bytes: int
    """The part of it that is neither argument nor result: `temp_size_in_bytes` of XLA."""
    argument_bytes: int
    assigned_bytes: int | None
    """What its buffer assignment reserves in all; None where it does not give it away."""
    resident_bytes: int | None
    """What a call took from the system in a process of its own, arguments apart; None where that is not measured."""


@runtime_checkable
class HasCompiler(Protocol):
    """A program that a compiler makes one function of, with an order and addresses of its own."""

    def compiled(self) -> object:
        """Return what the compiler made, which is a program to read itself; raises UnsupportedError where it fails."""
        ...

    def compiled_memory(self, plan: Plan) -> Sequence[CompiledMemory]:
        """Compile the program as it stands and under a plan, run both, and say what they take; raises PlanError."""
        ...


@runtime_checkable
class CopiesToHost(Protocol):
    """A program whose framework can copy buffers to a host and back, as a plan says."""

    def with_host(self, host: Host) -> Model:
        """Return the program with a host; its plans may copy there."""
        ...
