"""The operator tables, measured again: what shares storage with what in ONNX Runtime's CPU kernels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, defs, helper

from lowtide.frameworks.onnx.measure import measure_peak
from lowtide.frameworks.onnx.operators.tables import EXPANDED, IN_PLACE, RANDOM, STAND_INS, VIEWS
from lowtide.frameworks.onnx.running.inputs import random_inputs

SIZE = 4 * 8 * 64
FLOATS, LONGS = TensorProto.FLOAT, TensorProto.INT64
ARGUMENTS: dict[str, Any] = {
    "Cast": {"to": TensorProto.INT32},
    "BitCast": {"to": TensorProto.INT32},
}


def peak_of(op: str, domain: str, n_inputs: int, shared: int | None) -> int:
    """Run an op on values made just before it; all but input `shared` are needed once more behind it."""
    shapes: list[tuple[Sequence[int], int]] = [([8, 64], FLOATS)] * n_inputs
    if op in ("Scatter", "ScatterElements"):
        shapes = [([8, 64], FLOATS), ([8, 64], LONGS), ([8, 64], FLOATS)]
    if op == "TensorScatter":
        shapes = [([1, 8, 64], FLOATS), ([1, 8, 64], FLOATS)]
    if op in ("Conv", "FusedConv"):
        shapes = [([1, 16, 8, 4], FLOATS), ([16, 16, 1, 1], FLOATS), ([16], FLOATS), ([1, 16, 8, 4], FLOATS)]
    inputs = [helper.make_tensor_value_info(f"x{i}", kind, shape) for i, (shape, kind) in enumerate(shapes)]
    nodes = [helper.make_node("Concat", [f"x{i}"], [f"c{i}"], axis=0) for i in range(len(shapes))]
    names = [f"c{i}" for i in range(len(shapes))]
    nodes.append(helper.make_node(op, names, ["result"], domain=domain, **ARGUMENTS.get(op, {})))
    nodes += [helper.make_node("Shape", ["result"], ["done"])]
    kept = [i for i in range(len(shapes)) if i != shared]
    nodes += [helper.make_node("ReduceMax", [f"c{i}"], [f"k{i}"], keepdims=0) for i in kept]
    outputs = [helper.make_tensor_value_info("done", LONGS, None)]
    outputs += [helper.make_tensor_value_info(f"k{i}", shapes[i][1], []) for i in kept]
    return measure_peak(*_model_and_inputs(nodes, inputs, outputs, 10 if op == "Scatter" else 18)).peak_bytes


def _model_and_inputs(nodes: Any, inputs: Any, outputs: Any, opset: int) -> tuple[ModelProto, dict[str, Any]]:
    opset = 26 if nodes[len(inputs)].op_type in ("BitCast", "TensorScatter") else opset
    opsets = [helper.make_opsetid(domain, 1) for domain in ("com.microsoft", "com.microsoft.nchwc")]
    graph = helper.make_graph(nodes, "probe", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *opsets], ir_version=10)
    return model, {name: np.zeros_like(x) if x.dtype == np.int64 else x for name, x in random_inputs(model, {}).items()}


@pytest.mark.parametrize(("operator", "pairs"), IN_PLACE.items(), ids=lambda entry: str(entry))
def test_in_place_pairs_save_their_size(operator: tuple[str, str], pairs: Sequence[tuple[int, int]]) -> None:
    """A result takes over the input that dies, and needs storage of its own where it does not."""
    domain, op = operator
    ((source, _),) = pairs
    n_inputs = source + 1
    assert peak_of(op, domain, n_inputs, None) - peak_of(op, domain, n_inputs, source) == SIZE


@pytest.mark.parametrize("op", ["Exp", "Neg", "Abs", "Sqrt", "Erf", "Add", "Mul", "Sub", "Div", "Dropout", "Max"])
def test_ops_outside_the_table_take_storage_of_their_own(op: str) -> None:
    """ONNX Runtime has no in-place kernels for plain arithmetic."""
    assert ("", op) not in IN_PLACE
    n_inputs = 2 if op in ("Add", "Mul", "Sub", "Div", "Max") else 1
    assert abs(peak_of(op, "", n_inputs, None) - peak_of(op, "", n_inputs, 0)) < SIZE // 2


@pytest.mark.parametrize("op", sorted(op for _, op in VIEWS))
def test_views_take_no_storage(op: str) -> None:
    """A view of a value needs no bytes, even where the value is read again behind it."""
    attributes: dict[str, Any] = {}
    operands = {"Reshape": [64, 8], "Unsqueeze": [0], "Squeeze": [0]}
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node(op, ["a", *(["operand"] if op in operands else [])], ["view"], **attributes),
        helper.make_node("ReduceSum", ["view"], ["y"], keepdims=0),
        helper.make_node("ReduceMax", ["a"], ["z"], keepdims=0),
    ]
    outputs = [helper.make_tensor_value_info(name, FLOATS, []) for name in "yz"]
    weights = [helper.make_tensor("operand", LONGS, [len(operands[op])], operands[op])] if op in operands else []
    graph = helper.make_graph(nodes, "view", [helper.make_tensor_value_info("x", FLOATS, [1, 8, 64])], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert measure_peak(model, random_inputs(model, {})).peak_bytes == 2 * SIZE + 2 * 4


def test_expanded_operators_are_those_without_a_kernel() -> None:
    """ONNX Runtime expands exactly the operators that are defined as functions and have no CPU kernel."""
    state = onnxruntime.capi.onnxruntime_pybind11_state
    known = [kernel for kernel in state.get_all_opkernel_def() if kernel.provider == "CPUExecutionProvider"]
    kernels = {(kernel.domain, kernel.op_name) for kernel in known}
    schemas = [s for s in defs.get_all_schemas() if s.has_function or s.has_context_dependent_function]
    assert {(schema.domain, schema.name) for schema in schemas} - kernels == EXPANDED


def test_stand_ins_and_random_operators_exist() -> None:
    """Every standard operator that the tables name is defined by ONNX."""
    for name in [stand_in for stand_in, _ in STAND_INS.values()] + [op for domain, op in RANDOM if not domain]:
        assert defs.has(name)
