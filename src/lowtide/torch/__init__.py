"""The public PyTorch names: `TrainingStep`, `capture`, `measure` and what goes with them."""

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
    "training_step",
]


def read(program: Any) -> Graph:
    """Read anything that `capture` takes into a graph."""
    return TorchModel(program).graph


def apply(plan: Plan, program: Any, host: Host | None = None) -> Applied:
    """Return anything that `capture` takes as a callable that follows a plan for its graph, or for that in chunks.

    The plan may copy to `host`, where it was made for the graph beside that one.
    """
    return TorchModel(program, host=host).apply(checked_plan(plan))


def inductor(
    budget: GivenBudget = None, *, allow: Iterable[str] | None = None, **more: Any
) -> AbstractContextManager[None]:
    """Make `torch.compile` with PyTorch's own backend follow plans for whatever is compiled within.

    Takes the options of the backend "lowtide", without `compiler`. Compilation happens when a compiled function is
    first called (its backward pass included), so that call must be within. Raises UsageError for options that do not
    exist.
    """
    from lowtide.frameworks.torch.compile.fusion.settings import inductor as patched_inductor

    return patched_inductor(budget, allow=allow, **more)


def configure(budget: GivenBudget = None, **options: Any) -> None:
    """Set defaults for the backend "lowtide", for compilations whose call cannot give any options.

    Takes the options of the backend, and forgets what was set before; `configure()` forgets all. Options of a call come
    first, then these, then the budget in the environment variable `LOWTIDE_BUDGET`. What is compiled already stays
    so. Raises UsageError for options that do not exist or fit.
    """
    from lowtide.frameworks.torch.planning.options import checked_options, set_default_options

    set_default_options(checked_options(budget, options))


def save_plans(folder: str | Path) -> list[Path]:
    """Write the plans of the programs that the backend "lowtide" planned last to a folder, and return their paths.

    `torch.compile(..., options={"plans": folder})` follows them instead of planning, for the same program and with
    otherwise the same options: save on one rank, load on all. Raises UsageError where nothing was planned or the folder
    cannot be written.
    """
    from lowtide.frameworks.torch.planning.plan_folder import save_plans as write_plans
    from lowtide.frameworks.torch.planning.programs import planned_programs

    programs = planned_programs()
    if not programs:
        raise UsageError("no program was planned yet; call the compiled function first")
    return write_plans([(program.graph, program.result.plan) for program in programs], path_of(folder))


def measure_costs(program: Any) -> Prices:
    """Time every op of anything that `capture` takes on its device, for `lowtide.minimize(..., costs=...)`.

    Raises UnsupportedError where no op can be run here; see `Prices.estimated` for those that could not.
    """
    return TorchModel(program).measure_costs()
