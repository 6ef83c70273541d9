"""Forms of a model for one kind of processor: asked for, named in the file, refused elsewhere."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import lowtide
from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.onnx import OnnxModel, Session

BLOCKED = "com.microsoft.nchwc"
MACHINE = "lowtide.machine"


def _scaled_image() -> ModelProto:
    """Give a convolution of points of a single channel, which has the same bits in any layout."""
    weight = numpy_helper.from_array(np.linspace(-1, 1, 20, dtype=np.float32).reshape(20, 1, 1, 1), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 24, 24])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 20, 24, 24])
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    graph = helper.make_graph(nodes, "scaled", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _metadata(model: ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


@pytest.fixture(name="planned", scope="module")
def planned_fixture(tmp_path_factory: pytest.TempPathFactory) -> ModelProto:
    """Give a file that was planned for this machine; skip where the runtime knows no blocks."""
    folder = tmp_path_factory.mktemp("here")
    onnx.save(_scaled_image(), folder / "net.onnx")
    lowtide.optimize(folder / "net.onnx", output=folder / "here.onnx", for_this_machine=True, progress=False)
    found = onnx.load(folder / "here.onnx")
    if all(node.domain != BLOCKED for node in found.graph.node):
        pytest.skip("the runtime has no blocked layout on this processor")
    return found


@pytest.fixture(name="here")
def here_fixture(planned: ModelProto) -> ModelProto:
    """Give a copy to change."""
    copy = ModelProto()
    copy.CopyFrom(planned)
    return copy


@pytest.mark.usefixtures("planned")
def test_by_default_a_file_runs_on_any_machine(tmp_path: Path) -> None:
    """Even if a blocked layout gives equal bits, it is only offered."""
    model = OnnxModel(_scaled_image()).optimized(None)
    assert model.is_faster_here
    model.save_for_session(lowtide.minimize(model.graph).plan, tmp_path / "anywhere.onnx", "extended")
    saved = onnx.load(tmp_path / "anywhere.onnx")
    assert all(node.domain != BLOCKED for node in saved.graph.node)
    assert MACHINE not in _metadata(saved)


def test_a_file_for_this_machine_gives_the_bits_of_the_stock_runtime(planned: ModelProto) -> None:
    """It runs at planned addresses from the first run on."""
    content = _scaled_image().SerializeToString()
    stock = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    session = Session(planned.SerializeToString())
    inputs = random_inputs(_scaled_image(), {})
    assert session.run(None, inputs)[0].tobytes() == stock.run(None, inputs)[0].tobytes()
    assert (session.use.served, session.unplanned) == (1, None)


def test_a_file_for_blocks_of_another_size_is_refused(here: ModelProto) -> None:
    """Its results would be wrong."""
    (entry,) = (entry for entry in here.metadata_props if entry.key == MACHINE)
    size = int(entry.value.split(",")[0])
    entry.value = entry.value.replace(str(size), str(24 - size), 1)
    with pytest.raises(UnsupportedError, match=f"blocks of {24 - size} channels, here they have {size}"):
        Session(here.SerializeToString())


def test_a_file_for_another_release_of_the_runtime_runs_with_a_warning(here: ModelProto) -> None:
    (entry,) = (entry for entry in here.metadata_props if entry.key == MACHINE)
    entry.value = f"{entry.value.split(',')[0]}, ONNX Runtime 1.0"
    with pytest.warns(UserWarning, match=r"for ONNX Runtime 1\.0"):
        Session(here.SerializeToString())


def test_a_file_for_another_machine_keeps_its_name_when_it_is_planned_again(here: ModelProto, tmp_path: Path) -> None:
    """The layout stays that of the first machine."""
    (entry,) = (entry for entry in here.metadata_props if entry.key == MACHINE)
    entry.value = "24, ONNX Runtime 1.0"
    model = OnnxModel(here).optimized("none")
    model.save_for_session(lowtide.minimize(model.graph).plan, tmp_path / "again.onnx", "none")
    assert _metadata(onnx.load(tmp_path / "again.onnx"))[MACHINE] == "24, ONNX Runtime 1.0"


def test_a_lower_level_contradicts_this_machine() -> None:
    with pytest.raises(UsageError, match="leave out level basic"):
        OnnxModel(_scaled_image()).optimized("basic", for_this_machine=True)


def test_programs_without_such_a_runtime_refuse_the_option(tmp_path: Path) -> None:
    builder = lowtide.GraphBuilder("one op")
    builder.add_op("a", "a", writes=[builder.add_buffer("x", 8)])
    with pytest.raises(UsageError, match="leave out --for-this-machine"):
        lowtide.optimize(builder.build(), output=tmp_path / "planned.graph.json", for_this_machine=True, progress=False)


@pytest.mark.parametrize("fused", ["then", "else"])
def test_the_default_level_keeps_all_bits_of_each_branch(fused: str, tmp_path: Path) -> None:
    """A convolution that takes in a normalization rounds otherwise, even in a branch that some inputs do not take."""
    generator = np.random.default_rng(0)
    shapes = {"w": (8, 8, 3, 3), "scale": (8,), "bias": (8,), "mean": (8,), "variance": (8,)}
    weights = [
        numpy_helper.from_array(generator.uniform(0.1, 1, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    convolution = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])
    normalization = helper.make_node("BatchNormalization", ["c", *list(shapes)[1:]], ["n"])
    made = helper.make_graph([convolution, normalization], "made", [], [onnx.ValueInfoProto(name="n")], weights)
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["m"])], "other", [], [onnx.ValueInfoProto(name="m")])
    then_branch, else_branch = (made, other) if fused == "then" else (other, made)
    node = helper.make_node("If", ["flag"], ["y"], then_branch=then_branch, else_branch=else_branch)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, 16, 16]) for name in "xy")
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    given, planned = tmp_path / "given.onnx", tmp_path / "planned.onnx"
    graph = helper.make_graph([node], "branches", [flag, x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), given)
    lowtide.optimize(given, output=planned, progress=False)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    stock = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    for value in (False, True):
        inputs = {"flag": np.array(value), "x": generator.standard_normal((1, 8, 16, 16)).astype(np.float32)}
        assert Session(planned).run(None, inputs)[0].tobytes() == stock.run(None, inputs)[0].tobytes()
