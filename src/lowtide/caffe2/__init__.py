"""Public names for Caffe2: `Caffe2Model`, `read`, `apply`, `measure`, `plan`, and NetDefs without protocol buffers.

The functions of Caffe2's memonger are in `lowtide.caffe2.memonger`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Measurement
from lowtide.frameworks.caffe2.known import Known
from lowtide.frameworks.caffe2.model import Caffe2Model
from lowtide.frameworks.caffe2.nets.load import NetSource, load_net, write_net
from lowtide.frameworks.caffe2.nets.netdef import Argument, DeviceOption, NetDef, OperatorDef
from lowtide.frameworks.caffe2.plan_net import NetPlan, plan
from lowtide.frameworks.caffe2.running.run_net import NetRun, run_once

__all__ = [
    "Argument",
    "Caffe2Model",
    "DeviceOption",
    "NetDef",
    "NetPlan",
    "NetRun",
    "OperatorDef",
    "apply",
    "load_net",
    "measure",
    "plan",
    "read",
    "run_once",
    "save",
    "write_net",
]


def read(net: NetSource, dims: Mapping[str, int] | None = None, *, shapes: Known | None = None) -> Graph:
    """Return the graph of a NetDef; see `Caffe2Model` for `dims`, `shapes` and errors."""
    return Caffe2Model(net, dims, shapes=shapes).graph


def apply(plan: Plan, net: NetSource, dims: Mapping[str, int] | None = None, *, shapes: Known | None = None) -> Any:
    """Return a NetDef that follows the plan; see `Caffe2Model.apply`."""
    return Caffe2Model(net, dims, shapes=shapes).apply(plan)


def save(
    plan: Plan,
    net: NetSource,
    path: str | Path,
    dims: Mapping[str, int] | None = None,
    *,
    shapes: Known | None = None,
) -> None:
    """Write a NetDef that follows the plan to a file; see `Caffe2Model.save`."""
    Caffe2Model(net, dims, shapes=shapes).save(plan, Path(path))


def measure(
    plan: Plan, net: NetSource, dims: Mapping[str, int] | None = None, *, shapes: Known | None = None
) -> Measurement:
    """Run a NetDef in NumPy, with and without the plan; see `Caffe2Model.measure`."""
    return Caffe2Model(net, dims, shapes=shapes).measure(plan)
