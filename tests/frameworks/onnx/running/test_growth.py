"""What runs of planned files add to the resident memory of a process, as the system counts it."""

import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper

import lowtide
from lowtide.frameworks.onnx.running.children import measure_in_child
from lowtide.onnx import OnnxModel

SHAPE = [1, 2048, 2048]  # 16 MiB of floats


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read as Linux tells it")
def test_runs_add_what_was_reserved(tmp_path: Path) -> None:
    """From the first run on, resident memory grows by the arena and the results, within 5 %, and by less than stock."""
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("ReduceMean", ["b"], ["b_mean"], axes=[2]),
        helper.make_node("Mul", ["a", "x"], ["c"]),
        helper.make_node("Concat", ["a", "c"], ["d"], axis=0),
        helper.make_node("ReduceMean", ["d"], ["d_mean"], axes=[0, 2]),
        helper.make_node("Add", ["b_mean", "d_mean"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "grows", [value("x", TensorProto.FLOAT, SHAPE)], [value("y", TensorProto.FLOAT, None)]
    )
    opset = [helper.make_opsetid("", 17)]
    model = OnnxModel(helper.make_model(graph, opset_imports=opset, ir_version=8)).optimized("none")
    model.save(lowtide.minimize(model.graph).plan, tmp_path / "planned.onnx")
    session = measure_in_child(tmp_path / "planned.onnx", {}, planned=True, runs=4, threads=1)
    stock = measure_in_child(tmp_path / "planned.onnx", {}, planned=False, runs=4, threads=1)
    assert session.growth_bytes is not None
    assert session.reserved_bytes is not None
    assert stock.growth_bytes is not None
    assert abs(session.growth_bytes - session.reserved_bytes) <= 0.05 * session.reserved_bytes
    assert session.growth_bytes < stock.growth_bytes
    assert session.fallbacks == 0
