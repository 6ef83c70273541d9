"""ONNX Runtime as the judge: what lowtide predicts is what the runtime allocates, and the results never change."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest

from lowtide.engine.plan import Plan
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.onnx import OnnxModel, measure_peak


@pytest.mark.parametrize("seed", range(4))
def test_any_order_needs_what_was_predicted(
    case: Any, plan_of: Callable[..., Plan], peak_of: Callable[..., int], seed: int
) -> None:
    """The measured peak of a random order equals the prediction, and the outputs equal the original's bit for bit."""
    model = OnnxModel(case.make(), case.dims)
    plan = plan_of(model, seed)
    measured = model.measure(plan)
    assert measured.outputs_equal
    assert -case.below_bytes <= measured.after_bytes - peak_of(model, plan) <= case.above_bytes


@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_files_optimized_offline_are_understood(
    case: Any, plan_of: Callable[..., Plan], peak_of: Callable[..., int], level: str, tmp_path: Path
) -> None:
    """Fused and blocked operators of the runtime's own have known sizes, and the prediction still holds."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(case.make().SerializeToString(), options, providers=["CPUExecutionProvider"])
    model = OnnxModel(tmp_path / "optimized.onnx", case.dims)
    assert not [note for note in model.graph.unmodeled if "0 bytes" in note]
    plan = plan_of(model, 0)
    measured = model.measure(plan)
    assert measured.outputs_equal
    assert abs(measured.after_bytes - peak_of(model, plan)) <= case.above_bytes


def test_the_given_order_needs_no_more_than_the_original(case: Any) -> None:
    """Moving views to their readers costs nothing; a view that nobody reads no longer keeps its base from reuse."""
    model = OnnxModel(case.make(), case.dims)
    measured = model.measure(Plan.baseline(model.graph))
    assert measured.outputs_equal
    assert measured.after_bytes <= measured.before_bytes


@pytest.mark.parametrize("also", ["x", "w", "c"])
def test_an_input_or_weight_that_is_an_output_leaves_sizes_known(also: str, peak_of: Callable[..., int]) -> None:
    """An input is passed on, and a weight or constant is copied for the whole run."""
    square = np.ones((64, 64), np.float32)
    nodes = [
        onnx.helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(square)),
        onnx.helper.make_node("MatMul", ["x", "w"], ["a"]),
        onnx.helper.make_node("Exp", ["a"], ["b"]),
        onnx.helper.make_node("Sin", ["b"], ["y"]),
    ]
    x, y, other = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [64, 64]) for name in ("x", "y", also)
    )
    weights = [onnx.numpy_helper.from_array(square, "w")]
    graph = onnx.helper.make_graph(nodes, "passed on", [x], [y, other], weights)
    model = OnnxModel(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8))
    assert model.graph.unmodeled == ()
    plan = Plan.baseline(model.graph)
    measured = model.measure(plan)
    assert measured.outputs_equal
    assert measured.after_bytes == peak_of(model, plan) == (3 if also == "x" else 4) * square.nbytes


def test_a_nameless_dimension_can_be_measured() -> None:
    """Inputs are made for dimensions that are bound by place."""
    node = onnx.helper.make_node("Exp", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, 4]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "nameless", values[:1], values[1:])
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = OnnxModel(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), {"x.0": 3})
    assert model.measure(Plan.baseline(model.graph)).after_bytes == 2 * 3 * 4 * 4


def test_an_input_that_is_the_size_of_a_grid_is_what_the_file_says_of_the_grid() -> None:
    """A model that is told the size of its result runs on inputs that are made up."""
    node = onnx.helper.make_node("AffineGrid", ["theta", "size"], ["grid"])
    theta = onnx.helper.make_tensor_value_info("theta", onnx.TensorProto.FLOAT, [2, 2, 3])
    size = onnx.helper.make_tensor_value_info("size", onnx.TensorProto.INT64, [4])
    grid = onnx.helper.make_tensor_value_info("grid", onnx.TensorProto.FLOAT, [2, 5, 6, 2])
    graph = onnx.helper.make_graph([node], "grids", [theta, size], [grid])
    opsets = [onnx.helper.make_opsetid("", 20)]
    model = OnnxModel(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9))
    measured = model.measure(Plan.baseline(model.graph))
    assert measured.outputs_equal
    assert measured.after_bytes == 2 * 6 * 4 + 4 * 8 + 2 * 5 * 6 * 2 * 4


def test_inputs_are_the_same_every_time(cases: dict[str, Any]) -> None:
    """Made-up inputs come from a seed."""
    case = cases["attention"]
    one, other = (random_inputs(case.make(), case.dims) for _ in range(2))
    assert {name: array.tobytes() for name, array in one.items()} == {n: a.tobytes() for n, a in other.items()}
    assert one["x"].shape == (2, 10, 32)


def test_results_are_those_of_the_reference(cases: dict[str, Any]) -> None:
    """A measured run computes what the model says."""
    model = cases["views"].make()
    inputs = random_inputs(model, {})
    expected = onnx.reference.ReferenceEvaluator(model).run(None, inputs)
    for result, reference in zip(measure_peak(model, inputs).outputs, expected, strict=True):
        assert result == pytest.approx(reference, rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_random_draws_stay_the_same_in_every_order(plan_of: Callable[..., Plan], seed: int) -> None:
    """Draws keep their order among one another, so the runtime's stream gives each the same numbers."""
    made = onnx.helper.make_node
    nodes = [
        made("RandomUniform", [], ["a"], shape=[8], name="a"),
        made("Exp", ["x"], ["b"], name="b"),
        made("Neg", ["x"], ["c"], name="c"),
        made("RandomNormalLike", ["c"], ["d"], name="d"),
        made("Bernoulli", ["a"], ["e"], name="e"),
        made("Sum", ["a", "b", "d", "e"], ["y"], name="y"),
    ]
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8]) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "random", values[:1], values[1:])
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = OnnxModel(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))
    assert model.measure(plan_of(model, seed)).outputs_equal
