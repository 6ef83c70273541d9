"""The public names for Mesh-TensorFlow."""

from collections.abc import Mapping
from typing import Any

from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.frameworks.mesh_tensorflow.interface import GraphInterface
from lowtide.frameworks.mesh_tensorflow.model import (
    MeshTensorflowModel,
    compute_memory_contents_under_schedule,
    minimize_peak_memory,
    plan,
)

__all__ = [
    "GraphInterface",
    "MeshTensorflowModel",
    "apply",
    "compute_memory_contents_under_schedule",
    "minimize_peak_memory",
    "plan",
    "read",
]


def read(graph: Any, dims: Mapping[str, int] | None = None) -> Graph:
    """Return the graph of a GraphInterface, `mtf.Graph` or `tf.Graph`; see `MeshTensorflowModel` for errors."""
    return MeshTensorflowModel(graph, dims).graph


def apply(plan: Plan, graph: Any, dims: Mapping[str, int] | None = None) -> list[int]:
    """Return the ids of the operations in the plan's order; see `MeshTensorflowModel.apply`."""
    return MeshTensorflowModel(graph, dims).apply(plan)
