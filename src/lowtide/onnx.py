"""The public names for ONNX."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Measurement
from lowtide.frameworks.arena.runs import ArenaUse
from lowtide.frameworks.onnx.loading.load import ModelSource
from lowtide.frameworks.onnx.measure import MeasuredRun, measure_peak
from lowtide.frameworks.onnx.model import OnnxModel
from lowtide.frameworks.onnx.session import Pool, Session

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = [
    "ArenaUse",
    "MeasuredRun",
    "ModelSource",
    "OnnxModel",
    "Pool",
    "Session",
    "apply",
    "measure",
    "measure_peak",
    "read",
    "save",
]


def read(model: ModelSource, dims: Mapping[str, int] | None = None) -> Graph:
    """Read an ONNX model into a graph; see `OnnxModel` for `dims` and errors."""
    return OnnxModel(model, dims).graph


def apply(plan: Plan, model: ModelSource, dims: Mapping[str, int] | None = None) -> "ModelProto":
    """Return the model with its nodes in the plan's order; see `OnnxModel.apply`."""
    return OnnxModel(model, dims).apply(plan)


def save(
    plan: Plan,
    model: ModelSource,
    path: str | Path,
    dims: Mapping[str, int] | None = None,
    *,
    annotate: bool = False,
) -> None:
    """Write the model with its nodes in the plan's order; see `OnnxModel.save`.

    With `annotate`, node metadata describes the plan, for viewers such as Netron.
    """
    opened = OnnxModel(model, dims)
    (opened.save_annotated if annotate else opened.save)(plan, Path(path))


def measure(plan: Plan, model: ModelSource, dims: Mapping[str, int] | None = None) -> Measurement:
    """Run the unmodified and the planned model in ONNX Runtime; see `OnnxModel.measure`."""
    return OnnxModel(model, dims).measure(plan)
