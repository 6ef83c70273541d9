"""The operator tables, measured again: what shares storage with what in ONNX Runtime's CPU kernels."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, defs, helper

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.arena.allocator import Arena, ArenaRun, native_allocator
from lowtide.frameworks.onnx.measure import measure_peak
from lowtide.frameworks.onnx.operators.tables import EXPANDED, IN_PLACE, RANDOM, STAND_INS, VIEWS, in_place_pairs
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.frameworks.onnx.running.session import open_session

STATE = onnxruntime.capi.onnxruntime_pybind11_state
SIZE = 4 * 8 * 64
FLOATS, LONGS = TensorProto.FLOAT, TensorProto.INT64
ARGUMENTS: dict[str, Any] = {
    "Cast": {"to": TensorProto.INT32},
    "BitCast": {"to": TensorProto.INT32},
}
MOST_INPUTS = {"": 2, "com.microsoft": 1}
"""Of operators that are tried on floats, by domain; some of the runtime's own break down over inputs of other types."""


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
    opset = {"BitCast": 26, "TensorScatter": 24}.get(nodes[len(inputs)].op_type, opset)
    opsets = [helper.make_opsetid(domain, 1) for domain in ("com.microsoft", "com.microsoft.nchwc")]
    graph = helper.make_graph(nodes, "probe", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *opsets], ir_version=10)
    return model, {name: np.zeros_like(x) if x.dtype == np.int64 else x for name, x in random_inputs(model, {}).items()}


@pytest.mark.parametrize(("operator", "pairs"), sorted(IN_PLACE.items()), ids=lambda entry: str(entry))
def test_in_place_pairs_save_their_size(operator: tuple[str, str], pairs: Sequence[tuple[int, int]]) -> None:
    """A result takes over the input that dies, and needs storage of its own where it does not."""
    domain, op = operator
    if (not domain and operator not in _cpu_kernels()) or pairs != in_place_pairs(operator):
        pytest.skip("this ONNX Runtime has no such operator, or a result of its own")
    ((source, _),) = pairs
    n_inputs = source + 1
    assert peak_of(op, domain, n_inputs, None) - peak_of(op, domain, n_inputs, source) == SIZE


def test_no_other_operator_works_in_place() -> None:
    """Of all operators that make of one or two tensors one of the same size, those of the table take over storage."""
    kernels = _cpu_kernels()
    n_inputs = {(schema.domain, schema.name): schema.min_input for schema in STATE.get_all_operator_schema()}
    candidates = [
        (*operator, count)
        for operator, count in sorted(n_inputs.items())
        if operator in kernels and operator not in VIEWS
        if 0 < count <= MOST_INPUTS.get(operator[0], 0)
    ]
    tried, found = set[tuple[str, str]](), set[tuple[str, str, int]]()
    for domain, op, count in candidates:
        with suppress(UnsupportedError):  # it takes other inputs
            found |= {(domain, op, source) for source in range(count) if _works_in_place(op, domain, count, source)}
            tried.add((domain, op))
    in_table = {(*operator, source) for operator, ((source, _),) in IN_PLACE.items() if operator in tried}
    assert found == in_table
    assert len(tried) > 80
    assert len(found) > 15


def _cpu_kernels() -> set[tuple[str, str]]:
    known = [kernel for kernel in STATE.get_all_opkernel_def() if kernel.provider == "CPUExecutionProvider"]
    return {(kernel.domain, kernel.op_name) for kernel in known}


def _works_in_place(op: str, domain: str, n_inputs: int, source: int) -> bool:
    """Return whether an op on values made just before it allocates more where `source` is needed again behind it."""
    alone = _allocations(op, domain, n_inputs, None)
    return _allocations(op, domain, n_inputs, source) - alone > 1  # one is the value that is made of it behind it


def _allocations(op: str, domain: str, n_inputs: int, kept: int | None) -> int:
    names = [f"c{i}" for i in range(n_inputs)]
    nodes = [helper.make_node("Concat", [f"x{i}"], [f"c{i}"], axis=0) for i in range(n_inputs)]
    nodes.append(helper.make_node(op, names, ["result"], domain=domain, **ARGUMENTS.get(op, {})))
    nodes.append(helper.make_node("Shape", ["result"], ["done"]))
    outputs = [helper.make_tensor_value_info("done", LONGS, None)]
    if kept is not None:
        nodes.append(helper.make_node("Concat", [names[kept]], ["again"], axis=0))
        outputs.append(helper.make_tensor_value_info("again", FLOATS, [8, 64]))
    inputs = [helper.make_tensor_value_info(f"x{i}", FLOATS, [8, 64]) for i in range(n_inputs)]
    model, fed = _model_and_inputs(nodes, inputs, outputs, 18)
    allocator = native_allocator()
    session = open_session(model.SerializeToString(), dims={}, folder=None, allocator=allocator)
    run = ArenaRun(Arena(allocator), None)
    try:
        session.run(None, fed)
    except Exception as error:  # ONNX Runtime has an exception type per kind of failure and no common one
        raise UnsupportedError(str(error)) from None
    finally:
        report = run.end()
    return report.allocations


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
    schemas = [s for s in defs.get_all_schemas() if s.has_function or s.has_context_dependent_function]
    known = {(schema.domain, schema.name) for schema in defs.get_all_schemas()}
    assert {(schema.domain, schema.name) for schema in schemas} - _cpu_kernels() == EXPANDED & known


def test_stand_ins_and_random_operators_exist() -> None:
    """Every standard operator that the tables name is defined by ONNX."""
    for name in [stand_in for stand_in, _ in STAND_INS.values()] + [op for domain, op in RANDOM if not domain]:
        assert defs.has(name)
