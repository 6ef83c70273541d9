"""The graph that runs is the graph that is planned: what ONNX Runtime makes of a model, offline and in what order."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

import lowtide
from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.engine.plan import Plan
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.frameworks.onnx.running.levels import refer_to_given_weights
from lowtide.frameworks.onnx.stock.default_order import default_order_of
from lowtide.frameworks.resident import ResidentGrowth
from lowtide.onnx import OnnxModel, Session
from tests.frameworks.onnx.stock.recorded import recorded, resident_of


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any]) -> ModelProto:
    graph = helper.make_graph(nodes, "made", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _half() -> ModelProto:
    """Float16 ops, most of which have no kernel on the CPU."""
    nodes = [
        helper.make_node("Sin", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Exp", ["b"], ["c"]),
        helper.make_node("Add", ["c", "a"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [64, 64]) for name in "xy"]
    return _model(nodes, values[:1], values[1:], [])


def _quantized() -> ModelProto:
    """A DequantizeLinear with several readers, which the runtime copies for each of them."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        *(helper.make_node("MatMul", ["d", "w"], [f"m{i}"]) for i in range(4)),
        helper.make_node("Sum", [f"m{i}" for i in range(4)], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xy"]
    weights = [
        numpy_helper.from_array(np.float32(0.1), "s"),
        numpy_helper.from_array(np.int8(0), "z"),
        numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"),
    ]
    return _model(nodes, values[:1], values[1:], weights)


def _sparse() -> ModelProto:
    """A sparse weight, which the runtime makes dense."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, 64]) for name in "xy"]
    model = _model(nodes, values[:1], values[1:], [])
    elements = numpy_helper.from_array(np.ones(20, np.float32), "w")
    places = numpy_helper.from_array(np.arange(20, dtype=np.int64) * 7, "places")
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=elements, indices=places, dims=[64, 64]))
    return model


@pytest.mark.parametrize("make", [_half, _quantized, _sparse], ids=["half", "quantized", "sparse"])
def test_what_the_runtime_inserts_is_planned(make: Callable[[], ModelProto], plan_of: Any, peak_of: Any) -> None:
    """Casts, copies and dense weights are in the graph, and the prediction is measured to the byte."""
    model = OnnxModel(make()).optimized("none")
    assert not [note for note in model.graph.unmodeled if "0 bytes" in note]
    plan = plan_of(model, 1)
    measured = model.measure(plan)
    assert measured.outputs_equal
    assert measured.after_bytes == peak_of(model, plan)


def _half_in_branches() -> ModelProto:
    """A float16 value that a branch reads after ops of the outer graph did: both cast it to the same name."""
    kind, shape = TensorProto.FLOAT16, [64, 64]
    values = {name: helper.make_tensor_value_info(name, kind, shape) for name in "xyst"}
    branches = {
        f"{label}_branch": helper.make_graph([helper.make_node(op, ["a"], [result])], label, [], [values[result]])
        for label, op, result in (("then", "Sin", "s"), ("else", "Cos", "t"))
    }
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("If", ["c"], ["b"], **branches),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    return _model(nodes, [condition, values["x"]], [values["y"]], [])


def _assert_same_bits_at(level: str, model: ModelProto, folder: Path) -> Session:
    """Assert that a file written at a level and a session of the given file return its bits; return the session."""
    given, planned = folder / "given.onnx", folder / "planned.onnx"
    onnx.save(model, given)
    lowtide.optimize(given, output=planned, level=level, progress=False)
    inputs, session = random_inputs(model, {}), Session(given)
    expected = onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"]).run(None, inputs)
    for other in (onnxruntime.InferenceSession(planned, providers=["CPUExecutionProvider"]), session):
        assert other.run(None, inputs)[0].tobytes() == expected[0].tobytes()
    return session


@pytest.mark.parametrize("level", ["none", "all"])
def test_a_model_with_half_precision_in_branches_is_written_as_a_file_that_loads(level: str, tmp_path: Path) -> None:
    """ONNX Runtime casts a float16 value in an inner graph to a name of the outer graph, and refuses its own file."""
    session = _assert_same_bits_at(level, _half_in_branches(), tmp_path)
    assert session.unplanned is None


def test_casts_that_the_runtime_adds_on_loading_are_said_not_to_be_modeled() -> None:
    """A model as given has none of them, the optimized one has all of them."""
    given = OnnxModel(_half())
    (note,) = given.graph.unmodeled
    assert note.endswith("Add (1), Exp (1), Relu (1), Sin (1)")
    assert given.optimized("none").graph.unmodeled == ()


def _half_rounded() -> ModelProto:
    """Float16 values that lose bits in a cast to bfloat16 and back."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("Cast", ["a"], ["b"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["b"], ["c"], to=TensorProto.FLOAT16),
        helper.make_node("Add", ["a", "c"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [64, 64]) for name in "xy"]
    return _model(nodes, values[:1], values[1:], [])


@pytest.mark.parametrize("level", ["none", "all"])
def test_a_file_written_at_a_level_rounds_as_the_model_does(level: str, tmp_path: Path) -> None:
    """Loaded again, casts that the runtime inserted are no longer removed together with casts that round."""
    _assert_same_bits_at(level, _half_rounded(), tmp_path)


def _convolutions(channels: int) -> ModelProto:
    """Give a convolution of images, one in groups and one of points, of a number of channels that blocks do not fit."""
    filters = {"w0": (channels, 3, 3, 3), "w1": (channels, 1, 3, 3), "w2": (channels, channels, 1, 1)}
    generator = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(generator.normal(0, 0.1, shape).astype(np.float32), name)
        for name, shape in filters.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=channels),
        helper.make_node("HardSwish", ["c1"], ["r1"]),
        helper.make_node("Concat", ["r1", "r0"], ["both"], axis=0),
        helper.make_node("Conv", ["both", "w2"], ["y"]),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 48, 48])]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, channels, 48, 48])
    return _model(nodes, values, [y], weights)


class _Images(CalibrationDataReader):
    """One image, to learn ranges from."""

    def __init__(self) -> None:
        image = np.random.default_rng(0).standard_normal((1, 3, 48, 48)).astype(np.float32)
        self._feeds = iter([{"x": image}])

    def get_next(self) -> Any:
        return next(self._feeds, None)


@pytest.mark.parametrize("quantized", [False, True], ids=["blocked", "quantized"])
def test_layouts_that_the_runtime_takes_are_planned(quantized: bool, tmp_path: Path, peak_of: Any) -> None:
    """Padded channels, channels behind space, and what such kernels hold beside their results are in the graph."""
    path = tmp_path / "net.onnx"
    onnx.save(_convolutions(20), path)
    if quantized:
        quantize_static(path, tmp_path / "qdq.onnx", _Images(), quant_format=QuantFormat.QDQ)
        path = tmp_path / "qdq.onnx"
    model = OnnxModel(path).optimized("all")
    assert not [note for note in model.graph.unmodeled if "0 bytes" in note]
    measured = model.measure(Plan.baseline(model.graph))
    predicted = peak_of(model, Plan.baseline(model.graph))
    assert abs(predicted - measured.before_bytes) <= 0.02 * measured.before_bytes


@pytest.mark.parametrize("level", ["none", "extended"])
def test_the_stock_runtime_of_a_quantized_model_is_modeled(level: str, tmp_path: Path) -> None:
    """A DequantizeLinear is copied once, as the stock runtime does."""
    onnx.save(_convolutions(20), tmp_path / "net.onnx")
    path = tmp_path / "qdq.onnx"
    quantize_static(tmp_path / "net.onnx", path, _Images(), quant_format=QuantFormat.QDQ)
    model = OnnxModel(path).optimized(level)
    peaks = model.runtime_peaks(Plan.baseline(model.graph))
    measured = resident_of(recorded(path, pattern=True, level=level))
    assert abs(peaks.before_resident_bytes - measured) <= 0.02 * measured
    assert peaks.unmodeled == ()


def test_an_order_that_differs_from_process_to_process_is_not_predicted(tmp_path: Path) -> None:
    """The runtime leaves its blocked layout in several places, which it adds in any order."""
    onnx.save(_convolutions(20), tmp_path / "net.onnx")
    model = OnnxModel(tmp_path / "net.onnx").optimized("all")
    plan = Plan.baseline(model.graph)
    back = sum(node.op_type == "ReorderOutput" for node in model.apply(plan).graph.node)
    assert bool(model.runtime_peaks(plan).unmodeled) == (back > 1)


def test_a_sparse_weight_counts_as_the_dense_one_it_becomes() -> None:
    """Its bytes are those of all elements, zeros included."""
    assert OnnxModel(_sparse()).graph.persistent_bytes()["device"] == 64 * 64 * 4


def test_the_default_level_keeps_all_bits(cases: dict[str, Any], tmp_path: Path) -> None:
    """A planned file at the level that was chosen gives the bits of the unoptimized model, from its first run on."""
    case = cases["conv_net"]
    model = OnnxModel(case.make()).optimized(None)
    result = lowtide.minimize(model.graph)
    model.save(result.plan, tmp_path / "planned.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    stock = onnxruntime.InferenceSession(case.make().SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = random_inputs(case.make(), {})
    session = Session(tmp_path / "planned.onnx")
    for _ in range(3):
        assert session.run(None, inputs)[0].tobytes() == stock.run(None, inputs)[0].tobytes()
    assert (session.use.recorded, session.use.served) == (0, 3)
    assert model.level in ("all", "extended", "basic", "none")


@pytest.mark.parametrize(
    "noted", ["", "7", "[[[],[1],[2,3]]]", '[[["run"],[-5],[0]]]', '[[["run"],[64],[4611686018427387904]]]', "[" * 5000]
)
def test_addresses_that_a_file_notes_are_not_believed(cases: dict[str, Any], noted: str) -> None:
    """Whatever the metadata says, results are right."""
    model = cases["conv_net"].make()
    model.metadata_props.add(key="lowtide.addresses", value=noted)
    inputs = random_inputs(model, {})
    stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    session = Session(model.SerializeToString())
    for _ in range(3):
        assert session.run(None, inputs)[0].tobytes() == stock.run(None, inputs)[0].tobytes()
    assert session.use.served == 2


def test_wrong_addresses_in_a_file_cost_a_fallback_and_no_bit(cases: dict[str, Any]) -> None:
    """Blocks that would overlap lie elsewhere; the next run learns."""
    model = cases["conv_net"].make()
    inputs = random_inputs(model, {})
    content = model.SerializeToString()
    teacher = Session(content)
    teacher.run(None, inputs)
    ((key, sizes, offsets),) = json.loads(teacher.noted_addresses() or "")
    model.metadata_props.add(key="lowtide.addresses", value=json.dumps([[key, sizes, [0] * len(offsets)]]))
    expected = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
    session = Session(model.SerializeToString())
    for _ in range(3):
        assert session.run(None, inputs)[0].tobytes() == expected[0].tobytes()
    assert session.use.fallbacks.total() == 1  # the optimized nodes may come in another order in every session
    assert (session.use.recorded, session.use.served) == (1, 1)


def test_the_default_order_is_the_one_that_runs(case: Any, plan_of: Any, tmp_path: Path) -> None:
    """Any file runs as predicted, by the runtime's own profile; this fails when that changes its mind."""
    model = OnnxModel(case.make(), case.dims).optimized("none")
    path = tmp_path / "any.onnx"
    model.save(plan_of(model, 3), path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    saved = onnx.load(path)
    for place, node in enumerate(saved.graph.node):
        node.name = f"node {place}"
    session = onnxruntime.InferenceSession(saved.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, random_inputs(case.make(), case.dims))
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = [event["name"].removesuffix("_kernel_time") for event in events if event["name"].endswith("_kernel_time")]
    top = {node.name for node in saved.graph.node}
    expected = [saved.graph.node[place].name for place in default_order_of(saved.graph)]
    assert [name for name in ran if name in top] == expected


def test_a_level_that_is_none_is_refused(cases: dict[str, Any]) -> None:
    """The message names those there are."""
    with pytest.raises(UsageError, match="basic"):
        OnnxModel(cases["views"].make()).optimized("most")


def test_a_model_that_the_runtime_does_not_load_is_refused_in_a_line() -> None:
    """An operator without a kernel ends the child, not this process."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    model = _model([helper.make_node("Odd", ["x"], ["y"], domain="com.microsoft")], value[:1], value[1:], [])
    with pytest.raises(UnsupportedError, match="Odd"):
        OnnxModel(model).optimized("basic")


def test_inputs_too_large_to_try_levels_on_are_said() -> None:
    """The message tells what to do here, which is not to leave out a measurement."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2**24, 2**24]) for name in "xy"]
    model = OnnxModel(_model([helper.make_node("Relu", ["x"], ["y"])], values[:1], values[1:], []))
    with pytest.raises(UnsupportedError, match=r"^input 'x' .*does not fit in memory; .*--level$"):
        model.optimized(None)


def test_the_stock_order_may_undo_a_plan(cases: dict[str, Any]) -> None:
    """Both peaks are those of simulated orders, never below the bound of the graph."""
    model = OnnxModel(cases["attention"].make(), cases["attention"].dims)
    result = lowtide.minimize(model.graph)
    peaks = model.runtime_peaks(result.plan)
    assert min(peaks.before_bytes, peaks.after_bytes) >= sum(result.lower_bound_bytes.values())
    assert model.runtime_peaks(Plan.baseline(model.graph)).before_bytes == peaks.before_bytes


@pytest.mark.parametrize("level", ["none", "all"])
def test_weights_in_other_files_stay_there(cases: dict[str, Any], tmp_path: Path, level: str) -> None:
    """The optimized file refers to what the runtime left as it was, and holds what it changed."""
    model = cases["conv_net"].make()
    large = helper.make_node("MatMul", ["logits", "large"], ["hidden"])
    back = helper.make_node("MatMul", ["hidden", "back"], ["more"])
    model.graph.node.extend([large, back])
    generator = np.random.default_rng(0)
    for name, shape in (("large", (10, 512)), ("back", (512, 10))):
        model.graph.initializer.append(numpy_helper.from_array(generator.normal(size=shape).astype(np.float32), name))
    model.graph.output.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [1, 10]))
    path = tmp_path / "net.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    optimized = OnnxModel(path).optimized(level)
    onnx.load(path)  # refuses weights with a second hard link, so the optimized model keeps none
    plan = lowtide.minimize(optimized.graph).plan
    assert optimized.measure(plan).outputs_equal
    optimized.save(plan, tmp_path / "planned.onnx")
    saved = onnx.load(tmp_path / "planned.onnx", load_external_data=False)
    kept = {tensor.name for tensor in saved.graph.initializer if tensor.data_location == TensorProto.EXTERNAL}
    assert {"large", "back"} <= kept
    assert {entry.name for entry in tmp_path.iterdir() if entry.is_file()} == {
        "net.onnx",
        "weights.bin",
        "planned.onnx",
    }
    inputs = random_inputs(saved, {})
    stock = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)
    for one, other in zip(Session(tmp_path / "planned.onnx").run(None, inputs), stock, strict=True):
        assert np.allclose(one, other, rtol=1e-4, atol=1e-6)


EXTERNAL_BYTES = 2**26


def _write_external(path: Path, weights: Path) -> None:
    weight = numpy_helper.from_array(np.arange(EXTERNAL_BYTES // 4, dtype=np.float32).reshape(1, -1), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, EXTERNAL_BYTES // 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "large", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=True, location=weights.name, size_threshold=0)


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read as Linux tells it")
def test_weights_are_compared_without_becoming_resident(tmp_path: Path) -> None:
    """The optimized model refers to the given file again, and a fraction of the weights was in memory for that."""
    given, kept = tmp_path / "given.onnx", tmp_path / "given.weights"
    optimized, written = tmp_path / "optimized.onnx", tmp_path / "optimized.weights"
    _write_external(given, kept)
    _write_external(optimized, written)
    shutil.copy(kept, written)
    growth = ResidentGrowth()
    refer_to_given_weights(given, optimized, written)
    added = growth.highest_bytes()
    assert added is not None
    assert added < EXTERNAL_BYTES // 2
    (tensor,) = onnx.load(optimized, load_external_data=False).graph.initializer
    assert {entry.key: entry.value for entry in tensor.external_data}["location"] == kept.name
    assert not written.exists()
