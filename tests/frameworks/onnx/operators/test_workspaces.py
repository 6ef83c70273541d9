"""Workspaces of kernels, to the byte, as ONNX Runtime asks its allocator for them."""

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from lowtide.analysis import Problem
from lowtide.frameworks.onnx.measure import measure_peak
from lowtide.frameworks.onnx.read import read_model
from lowtide.frameworks.onnx.running.inputs import random_inputs

FLOAT, BYTE = TensorProto.FLOAT, TensorProto.UINT8


def _model(op: str, inputs: dict[str, Any], outputs: dict[str, int], **attributes: Any) -> onnx.ModelProto:
    names = list(inputs)
    fed = [helper.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in inputs.items()]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph([helper.make_node(op, names, list(outputs), **attributes)], op, fed, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _assert_predicted(model: onnx.ModelProto) -> None:
    problem = Problem(read_model(model, {}, "given").graph)
    assert problem.transient.sum() > 0
    assert (
        measure_peak(model, random_inputs(model, {})).peak_bytes == problem.evaluate(problem.given_order()).peaks.sum()
    )


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("has_bias", "has_states"), [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "GRU, late reset", "RNN"])
def test_recurrent_kernels_take_the_gates_of_all_steps(
    op: str, direction: str, *, has_bias: bool, has_states: bool
) -> None:
    """Steps, batch and widths that all differ, so that none stands for another."""
    kind = op.split(",", maxsplit=1)[0]
    directions, gates = 1 + (direction == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    steps, batch, features, hidden = 11, 3, 16, 32
    inputs: dict[str, Any] = {"x": [steps, batch, features], "w": [directions, gates * hidden, features]}
    inputs["r"] = [directions, gates * hidden, hidden]
    if has_bias:
        inputs["b"] = [directions, 2 * gates * hidden]
    late = {"linear_before_reset": 1} if "," in op else {}
    model = _model(
        kind,
        {name: (shape, FLOAT) for name, shape in inputs.items()},
        dict.fromkeys(["y", *(["h", "c"][: 1 + (kind == "LSTM")] if has_states else [])], FLOAT),
        hidden_size=hidden,
        direction=direction,
        **late,
    )
    _assert_predicted(model)


def test_products_of_small_integers_are_summed_in_large_ones() -> None:
    """Each element of the result has four bytes beside it while the kernel runs."""
    inputs: dict[str, Any] = {"a": ([2, 100, 64], BYTE), "as": ([], FLOAT), "az": ([], BYTE)}
    inputs |= {"b": ([2, 64, 10], BYTE), "bs": ([], FLOAT), "bz": ([], BYTE), "ys": ([], FLOAT), "yz": ([], BYTE)}
    _assert_predicted(_model("QLinearMatMul", inputs, {"y": BYTE}))
