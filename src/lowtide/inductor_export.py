"""The public names for exports of Inductor."""

from collections.abc import Mapping
from pathlib import Path

from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.frameworks.inductor_export.export import Export, ExportSource, load_export
from lowtide.frameworks.inductor_export.model import InductorExportModel

__all__ = ["Export", "InductorExportModel", "apply", "load_export", "read", "save"]


def read(export: ExportSource, dims: Mapping[str, int] | None = None) -> Graph:
    """Return the graph of an export; see `InductorExportModel` for errors."""
    return InductorExportModel(export, dims).graph


def apply(plan: Plan, export: ExportSource, dims: Mapping[str, int] | None = None) -> Export:
    """Return the export with its nodes in the plan's order; see `InductorExportModel.apply`."""
    return InductorExportModel(export, dims).apply(plan)


def save(plan: Plan, export: ExportSource, path: str | Path, dims: Mapping[str, int] | None = None) -> None:
    """Write the export with its nodes in the plan's order; see `InductorExportModel.save`."""
    InductorExportModel(export, dims).save(plan, Path(path))
