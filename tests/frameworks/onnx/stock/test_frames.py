"""Bodies of If, Loop and Scan run in frames of their own: reuse inside, no pattern, values carried from run to run."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from lowtide.engine.analysis import Problem
from lowtide.frameworks.onnx.loading.load import load_model
from lowtide.frameworks.onnx.measure import measure_peak
from lowtide.frameworks.onnx.model import OnnxModel
from lowtide.frameworks.onnx.reading.translate import read_model
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.frameworks.onnx.stock.frames import has_frames
from lowtide.frameworks.onnx.stock.stock_graph import StockGraph
from tests.frameworks.onnx.stock.recorded import recorded, resident_of

WIDTH = 128
SHAPE = [512, WIDTH]
INTEGER, TRUTH, FLOAT = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT


def _value(name: str, shape: list[int] | None = SHAPE, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _step(source: str, target: str, *more: NodeProto) -> list[NodeProto]:
    """Give nodes that take a value through three others, one of them twice as large."""
    return [
        helper.make_node("Exp", [source], [f"{target}1"]),
        helper.make_node("Sin", [f"{target}1"], [f"{target}2"]),
        helper.make_node("Concat", [f"{target}1", f"{target}2"], [f"{target}3"], axis=1),
        helper.make_node("MatMul", [f"{target}3", "w"], [target]),
        *more,
    ]


def _branch(name: str, steps: int) -> GraphProto:
    nodes = [node for k in range(steps) for node in _step(f"{name}{k}" if k else "a", f"{name}{k + 1}")]
    return helper.make_graph(nodes, name, [], [_value(f"{name}{steps}")])


def _looped(*, collects: bool) -> NodeProto:
    more = [helper.make_node("Identity", ["going"], ["goes"])]
    inputs = [_value("i", [], INTEGER), _value("going", [], TRUTH), _value("s")]
    outputs = [_value("goes", [], TRUTH), _value("t")]
    if collects:
        more.append(helper.make_node("Cos", ["t1"], ["piece"]))
        outputs.append(_value("piece"))
    body = helper.make_graph(_step("s", "t", *more), "body", inputs, outputs)
    return helper.make_node("Loop", ["five", "yes", "a"], ["b", "all"] if collects else ["b"], body=body)


def _scanned() -> NodeProto:
    nodes = [helper.make_node("Add", ["s", "row"], ["u"]), *_step("u", "t")]
    nodes.append(helper.make_node("Cos", ["t1"], ["piece"]))
    body = helper.make_graph(nodes, "body", [_value("s"), _value("row")], [_value("t"), _value("piece")])
    return helper.make_node("Scan", ["a", "rows"], ["b", "all"], body=body, num_scan_inputs=1)


def _model(calling: NodeProto, rows: int = 4) -> ModelProto:
    nodes = [helper.make_node("Exp", ["x"], ["a"]), calling]
    last = "b"
    if "all" in calling.output:
        nodes.append(helper.make_node("ReduceMax", ["all"], ["most"], axes=[0], keepdims=0))
        nodes.append(helper.make_node("Add", ["b", "most"], ["c"]))
        last = "c"
    nodes.append(helper.make_node("Add", ["a", last], ["y"]))
    weights = [numpy_helper.from_array(np.full((2 * WIDTH, WIDTH), 1e-3, np.float32), "w")]
    weights += [numpy_helper.from_array(np.array(5), "five"), numpy_helper.from_array(np.array(True), "yes")]
    inputs = [_value("x")]
    if calling.op_type == "Scan":
        inputs.append(_value("rows", [rows, *SHAPE]))
    graph = helper.make_graph(nodes, "calls", inputs, [_value("y")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _if() -> NodeProto:
    return helper.make_node("If", ["yes"], ["b"], then_branch=_branch("p", 3), else_branch=_branch("q", 1))


CALLS = {
    "if": _if,
    "loop": lambda: _looped(collects=False),
    "loop that collects": lambda: _looped(collects=True),
    "scan": _scanned,
}


@pytest.mark.parametrize("name", CALLS)
def test_what_runs_inside_is_predicted_as_the_runtime_allocates_it(name: str, tmp_path: Path) -> None:
    """The block of the pattern, and the pages of the arena after three runs, but for those of a loop's counters."""
    onnx.save(_model(CALLS[name]()), tmp_path / "given.onnx")
    model = load_model(tmp_path / "given.onnx")
    translation = read_model(model, {}, name)
    predicted = StockGraph(model.graph, translation).in_own_order()
    runs = recorded(tmp_path / "given.onnx", pattern=True)
    assert has_frames(translation)
    assert any(abs(predicted.pattern_bytes - size) <= 512 for size in runs[-1][:, 0].tolist())
    assert predicted.resident_bytes == pytest.approx(resident_of(runs), abs=2 * 4096)


@pytest.mark.parametrize(("name", "rows"), [*((name, 4) for name in CALLS), ("scan", 1), ("scan", 2)])
def test_live_bytes_inside_are_predicted_to_some_counters(name: str, rows: int) -> None:
    """States of a scan have as many buffers as its runs need; at the end of a loop its last two states are there."""
    model = _model(CALLS[name](), rows)
    problem = Problem(read_model(model, {}, name).graph)
    measured = measure_peak(model, random_inputs(model, {})).peak_bytes
    assert measured == pytest.approx(problem.evaluate(problem.given_order()).peaks.sum(), abs=16)


def test_functions_are_said_to_count_at_their_peak(cases: dict[str, Any]) -> None:
    """The runtime expands them where they are called, which a file that it has not optimized does not show."""
    model = OnnxModel(cases["functions"].make(), cases["functions"].dims)
    assert not has_frames(model._translation)
