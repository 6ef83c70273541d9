"""The public names for XLA."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.errors import UsageError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Difference, Reserved
from lowtide.frameworks.xla.load import load_module
from lowtide.frameworks.xla.model import XlaModel
from lowtide.frameworks.xla.schedule import ScheduledModule, recorded_peaks, with_order_as_control_edges
from lowtide.frameworks.xla.schedule import schedule as schedule_module
from lowtide.frameworks.xla.text.module import HloModule
from lowtide.frameworks.xla.text.order import marked_scheduled, verify_schedule
from lowtide.frameworks.xla.text.parse import parse_module

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
    """Return the HLO module of a path or an object; see `load_module` for sources and errors."""
    return load_module(source).module


def read(module: Any, dims: Mapping[str, int] | None = None) -> Graph:
    """Read an HLO module into a graph; see `XlaModel`."""
    return XlaModel(module, dims).graph


def apply(plan: Plan, module: Any, dims: Mapping[str, int] | None = None) -> HloModule:
    """Return the module in the plan's order, marked as scheduled; see `XlaModel.apply`."""
    return XlaModel(module, dims).apply(plan)


def save(plan: Plan, module: Any, path: str | Path, dims: Mapping[str, int] | None = None) -> None:
    """Write the module in the plan's order as HLO text; see `XlaModel.save`."""
    XlaModel(module, dims).save(plan, Path(path))


def against_assignment(source: Any) -> Reserved:
    """Return the bytes that XLA reserved for a program, and the differences from the modeled peak of its order.

    `source` is a compiled executable, or the path of an HloProto with its buffer assignment. Raises UsageError without
    an assignment, and the errors of `XlaModel`.
    """
    reserved = XlaModel(source).reserved()
    if reserved is None:
        raise UsageError(
            "this module has no buffer assignment; give the compiled executable, or an HloProto with an assignment"
        )
    return reserved


def schedule(source: Any, effort: EffortName = DEFAULT_EFFORT) -> ScheduledModule:
    """Return a module in the best order of XLA's schedulers and the search, with XLA's three peaks recorded.

    Raises the errors of `XlaModel`.
    """
    return schedule_module(XlaModel(source).read, effort)


def hold_order(plan: Plan, source: Any) -> HloModule:
    """Return a module with a plan's order as control edges instead of a schedule.

    Raises the errors of `XlaModel` and of its `apply`.
    """
    return with_order_as_control_edges(XlaModel(source).read, plan)


def remove_schedule(module: HloModule) -> HloModule:
    """Return a module that is not marked as scheduled; its text keeps its order."""
    return marked_scheduled(module, scheduled=False)
