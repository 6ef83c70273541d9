"""Stability of the public names, see `docs/stability.md`."""

from collections.abc import Iterator
from typing import Literal

from lowtide.core.errors import UsageError, unknown

Stability = Literal["stable", "provisional"]

_STABLE: dict[str, str] = {
    "lowtide": (
        "Buffers Graph GraphBuilder Holder Host Lifetime Measurement Packed Plan Prices Result Space apply errors "
        "holders_at_peak load_plan measure minimize open_model optimize pack plan read read_graph_file read_plan_file "
        "save_plan verify "
        "write_graph_file write_plan_file"
    ),
    "lowtide.caffe2": "Caffe2Model NetDef OperatorDef Argument DeviceOption apply load_net measure read save write_net",
    "lowtide.inductor_export": "apply read save",
    "lowtide.jax": "FittedFunction JaxModel apply explain fit measure read",
    "lowtide.mesh_tensorflow": (
        "GraphInterface MeshTensorflowModel apply compute_memory_contents_under_schedule minimize_peak_memory plan read"
    ),
    "lowtide.onnx": "OnnxModel Pool Session apply measure read save",
    "lowtide.tensorflow": "GraphDef KerasStep NodeDef TensorflowModel apply measure optimize read save training_step",
    "lowtide.torch": "PlannedStep TorchModel TrainingStep apply configure explain measure read training_step",
    "lowtide.xla": "HloModule XlaModel apply load parse_module read save schedule",
}
_PROVISIONAL: dict[str, str] = {
    "lowtide": "Frontier Optimized compare diff fits frontier inspect pack_spaces report",
    "lowtide.caffe2": "NetPlan NetRun plan run_once",
    "lowtide.inductor_export": "Export InductorExportModel load_export",
    "lowtide.jax": "Donation FunctionPeak MeasuredFunction measure_compiled suggest_donation",
    "lowtide.onnx": "ArenaUse MeasuredRun ModelSource measure_peak",
    "lowtide.tensorflow": "GraphRun GraphSource OptimizedGraph run_graph with_host_stand_ins",
    "lowtide.torch": (
        "Applied Captured Explanation InArena MeasuredCall MeasuredStep capture in_arena inductor measure_captured "
        "measure_costs save_plans to_host"
    ),
    "lowtide.xla": "Difference Reserved ScheduledModule against_assignment hold_order recorded_peaks remove_schedule "
    "verify_schedule",
}


def stability_of(name: str) -> Stability:
    """Return the stability of a public name; raises UsageError for other names.

    >>> stability_of("lowtide.minimize"), stability_of("lowtide.jax.suggest_donation")
    ('stable', 'provisional')
    """
    stabilities = dict(public_names())
    if name not in stabilities:
        raise UsageError(unknown("public name", name, stabilities))
    return stabilities[name]


def public_names() -> Iterator[tuple[str, Stability]]:
    """Yield the public names with their module, and their stability."""
    for module in _STABLE:
        provisional = _PROVISIONAL.get(module, "").split()
        for name in sorted([*_STABLE[module].split(), *provisional], key=str.lower):
            yield f"{module}.{name}", "provisional" if name in provisional else "stable"
