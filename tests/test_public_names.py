"""The public face: exactly these names, each of them there, none loaded before it is used."""

import subprocess
import sys

import pytest

import lowtide

PUBLIC = [
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

FRAMEWORK_NAMES = {
    "caffe2": [
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
    ],
    "inductor_export": ["Export", "InductorExportModel", "apply", "load_export", "read", "save"],
    "jax": [
        "Donation",
        "FittedFunction",
        "FunctionPeak",
        "JaxModel",
        "MeasuredFunction",
        "apply",
        "explain",
        "fit",
        "measure",
        "measure_compiled",
        "read",
        "suggest_donation",
    ],
    "mesh_tensorflow": [
        "GraphInterface",
        "MeshTensorflowModel",
        "apply",
        "compute_memory_contents_under_schedule",
        "minimize_peak_memory",
        "plan",
        "read",
    ],
    "onnx": [
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
    ],
    "tensorflow": [
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
    ],
    "torch": [
        "Applied",
        "Captured",
        "Explanation",
        "InArena",
        "MeasuredCall",
        "MeasuredStep",
        "PlannedStep",
        "TorchModel",
        "TrainingStep",
        "apply",
        "capture",
        "configure",
        "explain",
        "in_arena",
        "inductor",
        "measure",
        "measure_captured",
        "measure_costs",
        "read",
        "save_plans",
        "to_host",
        "training_step",
    ],
    "xla": [
        "Difference",
        "HloModule",
        "Reserved",
        "ScheduledModule",
        "XlaModel",
        "against_assignment",
        "apply",
        "hold_order",
        "load",
        "parse_module",
        "read",
        "recorded_peaks",
        "remove_schedule",
        "save",
        "schedule",
        "verify_schedule",
    ],
}


def test_the_public_names_are_these() -> None:
    assert lowtide.__all__ == PUBLIC
    assert set(PUBLIC) < set(dir(lowtide))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(lowtide, name).__doc__


@pytest.mark.parametrize(("module", "names"), FRAMEWORK_NAMES.items())
def test_a_framework_has_these_public_names_and_documents_them(module: str, names: list[str]) -> None:
    public = getattr(lowtide, module)
    assert public.__all__ == names
    assert all(getattr(public, name).__doc__ for name in names)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lowtide.nonsense  # noqa: B018  # pyright: ignore


@pytest.mark.parametrize(
    "earlier",
    [
        "lowtide.cli.plan",
        "lowtide.engine.planning.find_plan",
        "lowtide.torch",
        "lowtide.onnx",
        "lowtide.jax",
        "lowtide.caffe2",
        "lowtide.inductor_export",
        "lowtide.mesh_tensorflow",
        "lowtide.tensorflow",
        "lowtide.api.opening",
    ],
)
def test_no_module_takes_the_place_of_a_public_function_when_it_is_loaded_first(earlier: str) -> None:
    """A submodule named like a public function would replace it in the package as soon as anything imports it."""
    command = (
        f"import {earlier}; from lowtide import *; print(*(type(value).__name__ for value in ({', '.join(PUBLIC)})))"
    )
    run = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    kinds = dict(zip(PUBLIC, run.stdout.split(), strict=True))
    assert [name for name, kind in kinds.items() if kind == "module"] == ["errors"]
