"""Planned files whose default order is the plan: the stock runtime follows them, and so does a session."""

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import lowtide
from lowtide.api.optimize import Job, check_order
from lowtide.core.errors import UsageError
from lowtide.frameworks.onnx.loading.load import PLANNED, load_model, read_metadata
from lowtide.frameworks.onnx.stock.default_order import default_order_of
from lowtide.onnx import OnnxModel, Session

ROWS = 64


def _branches() -> ModelProto:
    """Give two branches of which one must run first, in a file whose default order does that."""
    nodes: list[NodeProto] = []
    widths = {"late": (1536, 1280), "early": (2048, ROWS)}
    weights = [_weight(f"{name}_up", ROWS, wide) for name, (wide, _) in widths.items()]
    weights += [_weight(f"{name}_down", wide, narrow) for name, (wide, narrow) in widths.items()]
    for name in widths:
        nodes.append(helper.make_node("MatMul", ["x", f"{name}_up"], [f"{name}_wide"]))
        nodes.append(helper.make_node("MatMul", [f"{name}_wide", f"{name}_down"], [name]))
    nodes.append(helper.make_node("MatMul", ["early", "late"], ["y"]))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [ROWS, w]) for n, w in (("x", ROWS), ("y", 1280)))
    graph = helper.make_graph(nodes, "branches", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _chains(widths: dict[str, list[int]]) -> ModelProto:
    """Give chains of products of so many columns each, in units of 128, and their last values side by side."""
    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []
    for name, columns in widths.items():
        before, last = "x", ROWS
        for step, units in enumerate(columns):
            weights.append(_weight(f"{name}{step}_weight", last, 128 * units))
            nodes.append(helper.make_node("MatMul", [before, f"{name}{step}_weight"], [f"{name}{step}"]))
            before, last = f"{name}{step}", 128 * units
    ends = [f"{name}{len(columns) - 1}" for name, columns in widths.items()]
    nodes.append(helper.make_node("Concat", ends, ["y"], axis=1))
    columns = 128 * sum(columns[-1] for columns in widths.values())
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [ROWS, w]) for n, w in (("x", ROWS), ("y", columns)))
    graph = helper.make_graph(nodes, "chains", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _weight(name: str, *shape: int) -> TensorProto:
    content = np.random.default_rng(sum(name.encode())).normal(0, 0.1, shape)
    return numpy_helper.from_array(content.astype(np.float32), name)


def test_a_file_whose_order_is_bad_by_default_is_numbered_so_that_the_default_is_the_plan(tmp_path: Path) -> None:
    """The stock runtime then needs no more than the plan says, and a session just that, with the same results."""
    model = OnnxModel(_branches()).optimized("none")
    result = lowtide.minimize(model.graph)
    planned = tmp_path / "planned.onnx"
    model.save(result.plan, planned)
    peaks = model.runtime_peaks(result.plan)
    assert peaks.after_bytes == sum(result.peak_bytes.values()) <= peaks.before_bytes
    written = load_model(planned).graph
    ops = [written.node[place].output[0] for place in default_order_of(written)]
    assert ops == ["early_wide", "early", "late_wide", "late", "y"] != [node.output[0] for node in written.node]
    assert read_metadata(planned)[PLANNED] == "none, in the default order"
    x = np.random.default_rng(0).standard_normal((ROWS, ROWS)).astype(np.float32)
    session = Session(planned)
    (expected,) = Session(_branches().SerializeToString()).run(None, {"x": x})
    for _ in range(3):
        assert np.array_equal(session.run(None, {"x": x})[0], expected)
    assert session.use.fallbacks.total() == 0
    live = sum(result.peak_bytes.values()) - x.nbytes
    assert session.reserved_bytes == pytest.approx(live, rel=0.01)
    again = OnnxModel(planned)
    again.save(lowtide.minimize(again.graph).plan, tmp_path / "again.onnx")
    assert read_metadata(tmp_path / "again.onnx")[PLANNED] == "file"


def test_a_file_is_refused_that_no_number_saves_from_the_default_order(tmp_path: Path) -> None:
    """The best order leaves a chain in its middle, as no walk does: it is for lowtide's session alone."""
    model = OnnxModel(_chains({"a": [20, 1, 9, 8], "b": [14, 2]})).optimized("none")
    result, planned = lowtide.minimize(model.graph), tmp_path / "planned.onnx"
    with pytest.raises(UsageError, match="add --for lowtide-session"):
        check_order(model, result, Job(output=planned))
    check_order(model, result, Job(output=planned, target="lowtide-session"))
