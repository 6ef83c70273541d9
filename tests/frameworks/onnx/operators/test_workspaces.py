"""Workspaces of kernels, to the byte, as ONNX Runtime asks its allocator for them."""

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from lowtide.engine.analysis import Problem
from lowtide.frameworks.onnx.measure import measure_peak
from lowtide.frameworks.onnx.reading.translate import read_model
from lowtide.frameworks.onnx.running.inputs import random_inputs

FLOAT, BYTE = TensorProto.FLOAT, TensorProto.UINT8


def _model(op: str, inputs: dict[str, Any], outputs: dict[str, int], **attributes: Any) -> onnx.ModelProto:
    names = list(inputs)
    fed = [helper.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in inputs.items()]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph([helper.make_node(op, names, list(outputs), **attributes)], op, fed, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _assert_predicted(model: onnx.ModelProto) -> None:
    graph = read_model(model, {}, "given").graph
    problem = Problem(graph)
    assert graph.unmodeled == ()
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


@pytest.mark.parametrize("has_lengths", [False, True])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("outputs", [["", "h"], ["y", "h"]], ids=["last state", "both"])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent_kernels_without_some_results_or_lengths_are_predicted(
    op: str, outputs: list[str], direction: str, *, has_lengths: bool
) -> None:
    """An RNN allocates the states of all steps in any case; LSTM and GRU make up lengths that are not given."""
    directions, gates = 1 + (direction == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    steps, batch, features, hidden = 11, 3, 16, 32
    inputs: dict[str, Any] = {
        "x": ([steps, batch, features], FLOAT),
        "w": ([directions, gates * hidden, features], FLOAT),
        "r": ([directions, gates * hidden, hidden], FLOAT),
        "b": ([directions, 2 * gates * hidden], FLOAT),
    }
    if has_lengths:
        inputs["lengths"] = ([batch], TensorProto.INT32)
    model = _model(op, inputs, dict.fromkeys(outputs, FLOAT), hidden_size=hidden, direction=direction)
    if not outputs[0]:
        del model.graph.output[0]
    _assert_predicted(model)


def test_products_of_small_integers_are_summed_in_large_ones() -> None:
    """Each element of the result has four bytes beside it while the kernel runs."""
    inputs: dict[str, Any] = {"a": ([2, 100, 64], BYTE), "as": ([], FLOAT), "az": ([], BYTE)}
    inputs |= {"b": ([2, 64, 10], BYTE), "bs": ([], FLOAT), "bz": ([], BYTE), "ys": ([], FLOAT), "yz": ([], BYTE)}
    _assert_predicted(_model("QLinearMatMul", inputs, {"y": BYTE}))


NO_AXES: list[int] = []
SCALE, ZERO = (NO_AXES, FLOAT), (NO_AXES, BYTE)
ONE = {"x": ([32, 64], BYTE), "xs": SCALE, "xz": ZERO}
TWO = {**ONE, "w": ([64, 48], BYTE), "ws": SCALE, "wz": ZERO}
RESULT = {"ys": SCALE, "yz": ZERO}
OWN: dict[str, tuple[dict[str, Any], dict[str, int], dict[str, Any]]] = {
    "QGemm": ({**TWO, "b": ([48], TensorProto.INT32), **RESULT}, {"y": BYTE}, {}),
    "QGemm, turned": (
        {**TWO, "x": ([64, 32], BYTE), "b": ([48], TensorProto.INT32), **RESULT},
        {"y": BYTE},
        {"transA": 1},
    ),
    "DynamicQuantizeMatMul": (
        {"x": ([32, 64], FLOAT), **{name: TWO[name] for name in ("w", "ws", "wz")}},
        {"y": FLOAT},
        {},
    ),
    "QLinearAdd": ({**ONE, "w": ([32, 64], BYTE), "ws": SCALE, "wz": ZERO, **RESULT}, {"y": BYTE}, {}),
    "QLinearSoftmax": ({**ONE, **RESULT}, {"y": BYTE}, {"opset": 13}),
    "FusedMatMul": ({"x": ([2, 64, 32], FLOAT), "w": ([2, 64, 48], FLOAT)}, {"y": FLOAT}, {"transA": 1}),
    "FusedMatMul, one rank less": ({"x": ([2, 32, 64], FLOAT), "w": ([64, 48], FLOAT)}, {"y": FLOAT}, {"alpha": 0.5}),
    "FusedMatMul, one rank less, turned": (
        {"x": ([2, 64, 32], FLOAT), "w": ([48, 64], FLOAT)},
        {"y": FLOAT},
        {"transA": 1, "transB": 1},
    ),
    "FastGelu": ({"x": ([32, 64], FLOAT), "b": ([64], FLOAT)}, {"y": FLOAT}, {}),
    "SkipLayerNormalization": (
        {"x": ([1, 32, 64], FLOAT), "skip": ([1, 32, 64], FLOAT), "g": ([64], FLOAT), "b": ([64], FLOAT)},
        {"y": FLOAT},
        {},
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_workspaces_of_the_runtimes_own_operators_are_counted(name: str) -> None:
    """Where there is none, too."""
    inputs, outputs, attributes = OWN[name]
    _assert_predicted(_model(name.split(",", maxsplit=1)[0], inputs, outputs, domain="com.microsoft", **attributes))


@pytest.mark.parametrize("op", ["MoE", "QLinearAveragePool", "MatMulNBits", "GroupQueryAttention"])
def test_workspaces_of_the_runtimes_own_operators_that_are_not_known_are_said(op: str) -> None:
    model = _model(op, {"x": ([32, 64], FLOAT)}, {"y": FLOAT}, domain="com.microsoft")
    assert any(f"workspace of {op} kernels" in note for note in read_model(model, {}, "given").graph.unmodeled)
