"""The public PyTorch names: `TrainingStep`, `capture`, `measure` and related functions and types."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from lowtide.core.errors import UsageError
from lowtide.core.files import path_of
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan, checked_plan
from lowtide.engine.planning.budget import GivenBudget
from lowtide.frameworks.torch.capture.capture import capture
from lowtide.frameworks.torch.capture.step.training_step import TrainingStep
from lowtide.frameworks.torch.emit.apply import Applied
from lowtide.frameworks.torch.emit.in_arena import InArena, in_arena
from lowtide.frameworks.torch.internals.host_memory import to_host
from lowtide.frameworks.torch.measure.explain import Explanation, explain
from lowtide.frameworks.torch.measure.measure import MeasuredStep, measure
from lowtide.frameworks.torch.measure.measure_captured import MeasuredCall, measure_captured
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.training.planned_step import PlannedStep, training_step

__all__ = [
    "Applied",
    "Captured",
    "Explanation",
    "InArena",
    "MeasuredCall",
    "MeasuredStep",
    "PlannedStep",
    "TorchModel",
    "TrainingStep",
    "apply",
    "capture",
    "configure",
    "explain",
    "in_arena",
    "inductor",
    "measure",
    "measure_captured",
    "measure_costs",
    "read",
    "save_plans",
    "to_host",
    "training_step",
]


def read(program: Any) -> Graph:
    """Read any program that `capture` accepts into a graph."""
    return TorchModel(program).graph


def apply(plan: Plan, program: Any, host: Host | None = None) -> Applied:
    """Return a callable that follows a plan for the graph of `program`, or for its graph in chunks.

    `program` is anything that `capture` accepts. `host` is the host of a plan with copies.
    """
    return TorchModel(program, host=host).apply(checked_plan(plan))


def inductor(
    budget: GivenBudget = None, *, allow: Iterable[str] | None = None, **more: Any
) -> AbstractContextManager[None]:
    """Let PyTorch's own backend follow plans for all programs compiled in this context.

    Takes the options of the backend "lowtide", except `compiler`. Run the first call and its backward pass here, since
    they compile a function. Raises UsageError for unknown options.
    """
    from lowtide.frameworks.torch.compile.fusion.settings import inductor as patched_inductor

    return patched_inductor(budget, allow=allow, **more)


def configure(budget: GivenBudget = None, **options: Any) -> None:
    """Set default options for the backend "lowtide", for calls that cannot pass any.

    Replaces earlier defaults; `configure()` removes all. Options of a call have priority; the environment variable
    `LOWTIDE_BUDGET` comes last. Compiled functions do not change. Raises UsageError for unknown or incompatible
    options.
    """
    from lowtide.frameworks.torch.planning.options import checked_options, set_default_options

    set_default_options(checked_options(budget, options))


def save_plans(folder: str | Path) -> list[Path]:
    """Write the plans that the backend "lowtide" made last to a folder, and return their paths.

    `torch.compile(..., options={"plans": folder})` follows them for the same program and options, for instance on all
    ranks. Raises UsageError if nothing was planned or the folder cannot be written.
    """
    from lowtide.frameworks.torch.planning.plan_folder import save_plans as write_plans
    from lowtide.frameworks.torch.planning.programs import planned_programs

    programs = planned_programs()
    if not programs:
        raise UsageError("no program was planned yet; call the compiled function first")
    return write_plans([(program.graph, program.result.plan) for program in programs], path_of(folder))


def measure_costs(program: Any) -> Prices:
    """Time every op of a program on its device, for `lowtide.minimize(..., costs=...)`.

    `Prices.estimated` lists ops that could not run. Raises UnsupportedError if no op can run here.
    """
    return TorchModel(program).measure_costs()
