"""The public XLA names: `read`, `apply`, `save`, `HloModule` and what goes with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.errors import UsageError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Difference, Reserved
from lowtide.frameworks.xla.apply import with_order_as_control_edges
from lowtide.frameworks.xla.loading.load import load_module
from lowtide.frameworks.xla.model import XlaModel
from lowtide.frameworks.xla.schedule import ScheduledModule, recorded_peaks
from lowtide.frameworks.xla.schedule import schedule as schedule_module
from lowtide.frameworks.xla.text.module import HloModule
from lowtide.frameworks.xla.text.parse import parse_module
from lowtide.frameworks.xla.text.write import marked_scheduled
from lowtide.frameworks.xla.verify_schedule import verify_schedule

__all__ = [
    "Difference",
    "HloModule",
    "Reserved",
    "ScheduledModule",
    "XlaModel",
    "against_assignment",
    "apply",
    "hold_order",
    "load",
    "parse_module",
    "read",
    "recorded_peaks",
    "remove_schedule",
    "save",
    "schedule",
    "verify_schedule",
]


def load(source: Any) -> HloModule:
    """Return the HLO module of a path or an object; see `load_module` for what it takes and raises."""
    return load_module(source).module


def read(module: Any, dims: Mapping[str, int] | None = None) -> Graph:
    """Read an HLO module into a graph; the errors are those of `XlaModel`."""
    return XlaModel(module, dims).graph


def apply(plan: Plan, module: Any, dims: Mapping[str, int] | None = None) -> HloModule:
    """Return the module in the plan's order, marked as scheduled; see `XlaModel.apply`."""
    return XlaModel(module, dims).apply(plan)


def save(plan: Plan, module: Any, path: str | Path, dims: Mapping[str, int] | None = None) -> None:
    """Write the module in the plan's order as HLO text; see `XlaModel.save`."""
    XlaModel(module, dims).save(plan, Path(path))


def against_assignment(source: Any) -> Reserved:
    """Return what XLA reserved for a compiled program beside the model's peak for the same order, and why they differ.

    `source` is a compiled executable, or the path of an HloProto with its buffer assignment. Raises UsageError for one
    without, and what `XlaModel` raises.
    """
    reserved = XlaModel(source).reserved()
    if reserved is None:
        raise UsageError(
            "there is no buffer assignment beside this module; give the compiled executable, or an HloProto that has it"
        )
    return reserved


def schedule(source: Any, effort: EffortName = DEFAULT_EFFORT) -> ScheduledModule:
    """Return a module in the best order of XLA's schedulers and the search, with XLA's three peaks recorded.

    The errors are those of `XlaModel`.
    """
    return schedule_module(XlaModel(source).read, effort)


def hold_order(plan: Plan, source: Any) -> HloModule:
    """Return a module in a plan's order, held by control edges instead of a schedule.

    The errors are those of `XlaModel` and of its `apply`.
    """
    return with_order_as_control_edges(XlaModel(source).read, plan)


def remove_schedule(module: HloModule) -> HloModule:
    """Return a module that does not say any more that it is scheduled; its text keeps its order."""
    return marked_scheduled(module, scheduled=False)
