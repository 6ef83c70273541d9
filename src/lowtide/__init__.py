"""lowtide makes a computation graph fit in memory: it plans, proves, applies and measures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowtide import errors
    from lowtide.analysis.holders_at_peak import Holder, holders_at_peak
    from lowtide.frameworks.model import Measurement
    from lowtide.graph import Graph, GraphBuilder, Lifetime, read_graph_file, write_graph_file
    from lowtide.opening import apply, measure, open_model, read
    from lowtide.packing import Buffers, Packed, pack
    from lowtide.plan import Plan, read_plan_file, verify, write_plan_file
    from lowtide.planning.frontier import Frontier, frontier
    from lowtide.planning.result import Result
    from lowtide.programs import load_plan, minimize, save_plan

__version__ = "0.1.0"

_HOMES = {
    "Buffers": "lowtide.packing",
    "Frontier": "lowtide.planning.frontier",
    "Graph": "lowtide.graph",
    "GraphBuilder": "lowtide.graph",
    "Holder": "lowtide.analysis.holders_at_peak",
    "Lifetime": "lowtide.graph",
    "Measurement": "lowtide.frameworks.model",
    "Packed": "lowtide.packing",
    "Plan": "lowtide.plan",
    "Result": "lowtide.planning.result",
    "apply": "lowtide.opening",
    "frontier": "lowtide.planning.frontier",
    "holders_at_peak": "lowtide.analysis.holders_at_peak",
    "load_plan": "lowtide.programs",
    "measure": "lowtide.opening",
    "minimize": "lowtide.programs",
    "open_model": "lowtide.opening",
    "pack": "lowtide.packing",
    "read": "lowtide.opening",
    "read_graph_file": "lowtide.graph",
    "read_plan_file": "lowtide.plan",
    "save_plan": "lowtide.programs",
    "verify": "lowtide.plan",
    "write_graph_file": "lowtide.graph",
    "write_plan_file": "lowtide.plan",
}

__all__ = [
    "Buffers",
    "Frontier",
    "Graph",
    "GraphBuilder",
    "Holder",
    "Lifetime",
    "Measurement",
    "Packed",
    "Plan",
    "Result",
    "apply",
    "errors",
    "frontier",
    "holders_at_peak",
    "load_plan",
    "measure",
    "minimize",
    "open_model",
    "pack",
    "read",
    "read_graph_file",
    "read_plan_file",
    "save_plan",
    "verify",
    "write_graph_file",
    "write_plan_file",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import lowtide` costs next to nothing."""
    if name in ("errors", "onnx", "torch", "jax", "caffe2", "inductor_export", "mesh_tensorflow", "xla", "tensorflow"):
        return import_module(f"lowtide.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lowtide' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
