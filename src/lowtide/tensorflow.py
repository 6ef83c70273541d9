"""The public names for TensorFlow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Measurement
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.load import GraphSource
from lowtide.frameworks.tensorflow.measure import GraphRun, run_graph
from lowtide.frameworks.tensorflow.model import TensorflowModel
from lowtide.frameworks.tensorflow.optimize import OptimizedGraph, optimize
from lowtide.frameworks.tensorflow.session import with_host_stand_ins
from lowtide.frameworks.tensorflow.training import KerasStep, training_step

__all__ = [
    "GraphDef",
    "GraphRun",
    "GraphSource",
    "KerasStep",
    "NodeDef",
    "OptimizedGraph",
    "TensorflowModel",
    "apply",
    "measure",
    "optimize",
    "read",
    "run_graph",
    "save",
    "training_step",
    "with_host_stand_ins",
]


def read(graph: GraphSource, dims: Mapping[str, int] | None = None) -> Graph:
    """Return the lowtide graph of a TensorFlow graph; see `TensorflowModel`."""
    return TensorflowModel(graph, dims).graph


def apply(plan: Plan, graph: GraphSource, dims: Mapping[str, int] | None = None) -> Any:
    """Return the graph under a plan; see `TensorflowModel.apply`."""
    return TensorflowModel(graph, dims).apply(plan)


def save(plan: Plan, graph: GraphSource, path: str | Path, dims: Mapping[str, int] | None = None) -> None:
    """Write the graph under a plan; see `TensorflowModel.save`."""
    TensorflowModel(graph, dims).save(plan, Path(path))


def measure(plan: Plan, graph: GraphSource, dims: Mapping[str, int] | None = None) -> Measurement:
    """Measure both peaks; see `TensorflowModel.measure`."""
    return TensorflowModel(graph, dims).measure(plan)
