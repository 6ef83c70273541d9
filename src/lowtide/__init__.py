"""lowtide makes a computation graph fit in memory: it plans, proves, applies and measures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowtide import errors
    from lowtide.api.opening import apply, measure, open_model, read
    from lowtide.api.programs import load_plan, minimize, save_plan
    from lowtide.engine.analysis.holders_at_peak import Holder, holders_at_peak
    from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, read_graph_file, write_graph_file
    from lowtide.engine.packing import Buffers, Packed, pack
    from lowtide.engine.plan import Plan, read_plan_file, verify, write_plan_file
    from lowtide.engine.planning.frontier import Frontier, frontier
    from lowtide.engine.planning.measured import Measurement
    from lowtide.engine.planning.result import Result

__version__ = "0.1.0"

_HOMES = {
    "Buffers": "lowtide.engine.packing",
    "Frontier": "lowtide.engine.planning.frontier",
    "Graph": "lowtide.engine.graph",
    "GraphBuilder": "lowtide.engine.graph",
    "Holder": "lowtide.engine.analysis.holders_at_peak",
    "Lifetime": "lowtide.engine.graph",
    "Measurement": "lowtide.engine.planning.measured",
    "Packed": "lowtide.engine.packing",
    "Plan": "lowtide.engine.plan",
    "Result": "lowtide.engine.planning.result",
    "apply": "lowtide.api.opening",
    "frontier": "lowtide.engine.planning.frontier",
    "holders_at_peak": "lowtide.engine.analysis.holders_at_peak",
    "load_plan": "lowtide.api.programs",
    "measure": "lowtide.api.opening",
    "minimize": "lowtide.api.programs",
    "open_model": "lowtide.api.opening",
    "pack": "lowtide.engine.packing",
    "read": "lowtide.api.opening",
    "read_graph_file": "lowtide.engine.graph",
    "read_plan_file": "lowtide.engine.plan",
    "save_plan": "lowtide.api.programs",
    "verify": "lowtide.engine.plan",
    "write_graph_file": "lowtide.engine.graph",
    "write_plan_file": "lowtide.engine.plan",
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
        return import_module(f"lowtide.{'core.errors' if name == 'errors' else name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lowtide' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
