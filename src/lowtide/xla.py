"""The public XLA names: `read`, `apply`, `save`, `HloModule` and what goes with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lowtide.frameworks.xla.loading.load import load_module
from lowtide.frameworks.xla.model import XlaModel
from lowtide.frameworks.xla.text.module import HloModule
from lowtide.frameworks.xla.text.parse import parse_module
from lowtide.frameworks.xla.text.write import marked_scheduled
from lowtide.frameworks.xla.verify_schedule import verify_schedule
from lowtide.graph import Graph
from lowtide.plan import Plan

__all__ = [
    "HloModule",
    "XlaModel",
    "apply",
    "load",
    "parse_module",
    "read",
    "remove_schedule",
    "save",
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


def remove_schedule(module: HloModule) -> HloModule:
    """Return a module that does not say any more that it is scheduled; its text keeps its order."""
    return marked_scheduled(module, scheduled=False)
