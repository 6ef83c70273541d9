"""lowtide makes a computation graph fit in memory: it plans, proves, applies and measures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowtide import errors
    from lowtide.api.opening import open_model
    from lowtide.api.optimize import Optimized
    from lowtide.api.verbs import (
        apply,
        compare,
        diff,
        fits,
        frontier,
        inspect,
        load_plan,
        measure,
        minimize,
        optimize,
        plan,
        read,
        report,
        save_plan,
    )
    from lowtide.engine.analysis.holders_at_peak import Holder, holders_at_peak
    from lowtide.engine.costs import Prices
    from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, Space, read_graph_file, write_graph_file
    from lowtide.engine.offload import Host
    from lowtide.engine.packing import Buffers, Packed, pack, pack_spaces
    from lowtide.engine.plan import Plan, read_plan_file, verify, write_plan_file
    from lowtide.engine.planning.frontier import Frontier
    from lowtide.engine.planning.measured import Measurement
    from lowtide.engine.planning.result import Result

__version__ = "0.1.0"

_FACES = (
    "caffe2",
    "errors",
    "inductor_export",
    "jax",
    "mesh_tensorflow",
    "onnx",
    "share",
    "tensorflow",
    "torch",
    "xla",
)
_HOMES = {
    "Buffers": "lowtide.engine.packing",
    "Frontier": "lowtide.engine.planning.frontier",
    "Graph": "lowtide.engine.graph",
    "GraphBuilder": "lowtide.engine.graph",
    "Holder": "lowtide.engine.analysis.holders_at_peak",
    "Host": "lowtide.engine.offload",
    "Lifetime": "lowtide.engine.graph",
    "Measurement": "lowtide.engine.planning.measured",
    "Optimized": "lowtide.api.optimize",
    "Packed": "lowtide.engine.packing",
    "Plan": "lowtide.engine.plan",
    "Prices": "lowtide.engine.costs",
    "Result": "lowtide.engine.planning.result",
    "Space": "lowtide.engine.graph",
    "apply": "lowtide.api.verbs",
    "compare": "lowtide.api.verbs",
    "diff": "lowtide.api.verbs",
    "fits": "lowtide.api.verbs",
    "frontier": "lowtide.api.verbs",
    "holders_at_peak": "lowtide.engine.analysis.holders_at_peak",
    "inspect": "lowtide.api.verbs",
    "load_plan": "lowtide.api.verbs",
    "measure": "lowtide.api.verbs",
    "minimize": "lowtide.api.verbs",
    "open_model": "lowtide.api.opening",
    "optimize": "lowtide.api.verbs",
    "pack": "lowtide.engine.packing",
    "pack_spaces": "lowtide.engine.packing",
    "plan": "lowtide.api.verbs",
    "read": "lowtide.api.verbs",
    "read_graph_file": "lowtide.engine.graph",
    "read_plan_file": "lowtide.engine.plan",
    "report": "lowtide.api.verbs",
    "save_plan": "lowtide.api.verbs",
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
    "Host",
    "Lifetime",
    "Measurement",
    "Optimized",
    "Packed",
    "Plan",
    "Prices",
    "Result",
    "Space",
    "apply",
    "compare",
    "diff",
    "errors",
    "fits",
    "frontier",
    "holders_at_peak",
    "inspect",
    "load_plan",
    "measure",
    "minimize",
    "open_model",
    "optimize",
    "pack",
    "pack_spaces",
    "plan",
    "read",
    "read_graph_file",
    "read_plan_file",
    "report",
    "save_plan",
    "verify",
    "write_graph_file",
    "write_plan_file",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that `import lowtide` costs next to nothing."""
    if name in (
        "errors",
        "onnx",
        "torch",
        "jax",
        "caffe2",
        "inductor_export",
        "mesh_tensorflow",
        "share",
        "xla",
        "tensorflow",
    ):
        return import_module(f"lowtide.{'core.errors' if name == 'errors' else name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lowtide' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
