"""The public Caffe2 names: `Caffe2Model`, `read`, `apply`, `measure`, `plan`, and NetDefs without protocol buffers.

`lowtide.caffe2.memonger` has the functions of Caffe2's memonger.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Measurement
from lowtide.frameworks.caffe2.measure import NetRun, run_once
from lowtide.frameworks.caffe2.model import Caffe2Model
from lowtide.frameworks.caffe2.nets.load import NetSource, load_net, write_net
from lowtide.frameworks.caffe2.plan_net import NetPlan, plan
from lowtide.frameworks.caffe2.proto.netdef import Argument, DeviceOption, NetDef, OperatorDef
from lowtide.frameworks.caffe2.shapes.known import Known

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
    """Read a NetDef into a graph; `dims`, `shapes` and the errors are those of `Caffe2Model`."""
    return Caffe2Model(net, dims, shapes=shapes).graph


def apply(plan: Plan, net: NetSource, dims: Mapping[str, int] | None = None, *, shapes: Known | None = None) -> Any:
    """Return a NetDef that does what the plan says; see `Caffe2Model.apply`."""
    return Caffe2Model(net, dims, shapes=shapes).apply(plan)


def save(
    plan: Plan,
    net: NetSource,
    path: str | Path,
    dims: Mapping[str, int] | None = None,
    *,
    shapes: Known | None = None,
) -> None:
    """Write a NetDef that does what the plan says to a file; see `Caffe2Model.save`."""
    Caffe2Model(net, dims, shapes=shapes).save(plan, Path(path))


def measure(
    plan: Plan, net: NetSource, dims: Mapping[str, int] | None = None, *, shapes: Known | None = None
) -> Measurement:
    """Run a NetDef as it stands and under the plan in NumPy; see `Caffe2Model.measure`."""
    return Caffe2Model(net, dims, shapes=shapes).measure(plan)
