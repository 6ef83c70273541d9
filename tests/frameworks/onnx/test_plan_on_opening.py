"""A session of an unplanned model plans it: the graph that the stock runtime would run, in a better order."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime import GraphOptimizationLevel

import lowtide
from lowtide.core.errors import UsageError
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.onnx import OnnxModel, Pool, Session


def _stock(content: bytes) -> Any:
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def _branches(rows: int | str = 64) -> ModelProto:
    """Give a large value, and a small one computed from a large one, which the runtime computes after the first."""
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Concat", ["e"] * 8, ["other"], axis=1),
        helper.make_node("ReduceMax", ["other"], ["largest"], axes=[0]),
        helper.make_node("Transpose", ["largest"], ["column"], perm=[1, 0]),
        helper.make_node("Concat", ["x"] * 8, ["large"], axis=1),
        helper.make_node("MatMul", ["large", "column"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 256])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 1])
    graph = helper.make_graph(nodes, "branches", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _convolutions(size: int | str = 48) -> ModelProto:
    """Give convolutions of one image, each with a maximum behind it."""
    generator = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(generator.normal(0, 0.1, (16, fan_in, 3, 3)).astype(np.float32), f"w{k}")
        for k, fan_in in enumerate([3, *[16] * 6])
    ]

    def conv(source: str, number: int) -> list[Any]:
        made = helper.make_node("Conv", [source, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1])
        return [made, helper.make_node("Relu", [f"c{number}"], [f"r{number}"])]

    nodes = conv("x", 0)
    for number in range(1, 7):
        nodes += conv("r0", number)
        nodes.append(helper.make_node("GlobalMaxPool", [f"r{number}"], [f"p{number}"]))
    nodes.append(helper.make_node("Concat", [f"p{number}" for number in range(1, 7)], ["y"], axis=1))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, size, size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 96, 1, 1])
    graph = helper.make_graph(nodes, "skipping", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _shared_scale() -> ModelProto:
    """Give a quantized value that several nodes read as floats."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        *(helper.make_node("MatMul", ["d", "w"], [f"m{i}"]) for i in range(3)),
        helper.make_node("Sum", [f"m{i}" for i in range(3)], ["y"]),
    ]
    weights = [numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(0), "z")]
    weights.append(numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xy"]
    graph = helper.make_graph(nodes, "shared", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("make", [_branches, _convolutions])
def test_an_unplanned_model_needs_no_more_than_in_the_order_of_the_runtime(make: Any) -> None:
    """The bits are those of the stock runtime."""
    content = make().SerializeToString()
    inputs = random_inputs(make(), {})
    expected = _stock(content).run(None, inputs)[0].tobytes()
    planned, given = Session(content), Session(content, plan=False)
    for session in (planned, given):
        assert all(session.run(None, inputs)[0].tobytes() == expected for _ in range(2))
    assert planned.unplanned is None
    assert given.unplanned == "plan=False"
    assert planned.reserved_bytes <= given.reserved_bytes


def test_a_model_is_planned_if_the_runtimes_order_is_bad() -> None:
    content = _branches().SerializeToString()
    inputs = random_inputs(_branches(), {})
    planned, given = Session(content), Session(content, plan=False)
    for session in (planned, given):
        session.run(None, inputs)
    assert planned.reserved_bytes < 0.7 * given.reserved_bytes


@pytest.mark.parametrize("dims", [None, {"rows": 64}])
def test_dynamic_models_are_planned_for_the_sizes_that_are_given_or_of_the_first_run(dims: Any) -> None:
    """Runs may have other sizes."""
    content = _branches("rows").SerializeToString()
    stock, given, session = _stock(content), Session(content, plan=False), Session(content, dims=dims)
    assert (session.unplanned is None) == (dims is not None)
    assert dims is not None or "rows" in (session.unplanned or "")
    for rows in (64, 64, 10):
        x = np.random.default_rng(rows).standard_normal((rows, 256)).astype(np.float32)
        results = [each.run(None, {"x": x})[0].tobytes() for each in (stock, given, session)]
        assert results[0] == results[1] == results[2]
        assert session.unplanned is None
    assert session.use.served
    assert session.reserved_bytes < 0.7 * given.reserved_bytes


def test_a_dynamic_model_waits_for_a_run_that_fits_it() -> None:
    content = _branches("rows").SerializeToString()
    session = Session(content)
    with pytest.raises(Exception, match="x"):
        session.run(None, {"x": np.zeros(3, np.float32)})
    assert session.unplanned is not None
    values = onnxruntime.OrtValue.ortvalue_from_numpy(np.ones((64, 256), np.float32))
    session.run_with_ort_values(None, {"x": values})
    assert session.unplanned is None


def test_a_binding_that_is_made_before_the_first_run_stays_valid() -> None:
    session = Session(_branches("rows").SerializeToString())
    binding = session.io_binding()
    x = np.ones((64, 256), np.float32)
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    expected = session.run(None, {"x": x})[0].tobytes()
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tobytes() == expected
    assert "dims" in (session.unplanned or "")


def test_wrong_dims_are_refused() -> None:
    with pytest.raises(UsageError, match="columns"):
        Session(_branches("rows").SerializeToString(), dims={"columns": 3})


def test_weights_in_other_files_are_found(tmp_path: Path) -> None:
    """The folder of the model is as it was."""
    path = tmp_path / "net.onnx"
    onnx.save(_convolutions(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    inputs = random_inputs(_convolutions(), {})
    session = Session(path)
    assert session.unplanned is None
    assert (
        session.run(None, inputs)[0].tobytes()
        == _stock(_convolutions().SerializeToString()).run(None, inputs)[0].tobytes()
    )
    assert {entry.name for entry in tmp_path.iterdir()} == {"net.onnx", "weights.bin"}


def test_options_serve_one_session_after_the_other(tmp_path: Path) -> None:
    """The level is that of the options, and sessions leave it as it was."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    pool = Pool()
    for make in (_shared_scale, _convolutions, _shared_scale):
        session = pool.open(make().SerializeToString(), options)
        assert session.unplanned is None
        assert session.get_modelmeta().custom_metadata_map["lowtide.planned"] == "basic"
        assert options.graph_optimization_level == GraphOptimizationLevel.ORT_ENABLE_BASIC
        inputs = random_inputs(make(), {})
        assert np.allclose(session.run(None, inputs)[0], _stock(make().SerializeToString()).run(None, inputs)[0], 1e-4)


@pytest.mark.parametrize("level", [None, "all"])
def test_the_nodes_that_were_planned_are_those_that_run(tmp_path: Path, level: str | None) -> None:
    """A session lets the runtime copy no DequantizeLinear again, even if several nodes read it."""
    onnx.save(_shared_scale(), tmp_path / "net.onnx")
    model = OnnxModel(tmp_path / "net.onnx")
    model = model if level is None else model.optimized(level)
    model.save_for_session(lowtide.minimize(model.graph).plan, tmp_path / "planned.onnx", level or "file")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "ran.onnx")
    Session(tmp_path / "planned.onnx", options)
    given, ran = (onnx.load(tmp_path / f"{name}.onnx").graph.node for name in ("planned", "ran"))
    assert sorted(node.op_type for node in given) == sorted(node.op_type for node in ran)


def test_a_model_that_the_runtime_does_not_load_raises_its_error() -> None:
    model = _branches()
    model.graph.node[0].op_type = "Nothing"
    with pytest.raises(Exception, match="Nothing"):
        Session(model.SerializeToString())
