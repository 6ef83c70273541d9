"""Models of the onnx package itself, a sample of them, are read and written; what is refused is refused rightly."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from lowtide.core.errors import MalformedInputError, UnsupportedError
from lowtide.engine.plan import Plan
from lowtide.frameworks.onnx.loading.load import load_model
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.frameworks.onnx.shapes.infer import dynamic_dimensions
from lowtide.onnx import OnnxModel

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
SAMPLE = sorted(DATA.rglob("model.onnx"))[::6]


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.parent.name)
def test_a_model_of_the_package_is_read_and_written(path: Path, tmp_path: Path) -> None:
    """Its nodes come back, every one of them, and everything else as it was."""
    dims = dict.fromkeys(dynamic_dimensions(load_model(path).graph), 2)
    model = OnnxModel(path, dims)
    model.save(Plan.baseline(model.graph), tmp_path / "out.onnx")
    saved, given = onnx.load(tmp_path / "out.onnx"), onnx.load(path)
    assert sorted(n.SerializeToString() for n in saved.graph.node) == sorted(
        n.SerializeToString() for n in given.graph.node
    )
    assert saved.graph.initializer == given.graph.initializer
    assert OnnxModel(tmp_path / "out.onnx", dims).graph.n_ops == model.graph.n_ops


def _matmul(left: list[int], right: list[int], opset: int = 17) -> onnx.ModelProto:
    values = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, left),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, right),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"])], "product", values, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_matrices_that_do_not_go_together_are_refused() -> None:
    """The message says what inference says."""
    with pytest.raises(MalformedInputError, match="Incompatible dimensions"):
        OnnxModel(_matmul([2, 3], [4, 5]))


def test_an_operator_set_of_the_future_is_refused() -> None:
    """Its operators may mean anything."""
    with pytest.raises(UnsupportedError, match="operator set 99"):
        OnnxModel(_matmul([2, 3], [3, 5], opset=99))


def test_an_input_that_no_machine_holds_is_refused_before_it_is_measured() -> None:
    """One line, not an error of NumPy's."""
    with pytest.raises(UnsupportedError, match="does not fit"):
        random_inputs(_matmul([2**20, 2**26], [2**26, 1]), {})


def test_the_first_scan_may_leave_out_its_lengths() -> None:
    """Scan of operator set 8 has an optional first input, which stands empty."""
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "row"], ["next"]), helper.make_node("Identity", ["next"], ["out"])],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("sum", "row")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("next", "out")],
    )
    node = helper.make_node("Scan", ["", "start", "rows"], ["end", "all"], num_scan_inputs=1, body=body)
    inputs = [
        helper.make_tensor_value_info("start", TensorProto.FLOAT, [1, 2]),
        helper.make_tensor_value_info("rows", TensorProto.FLOAT, [1, 3, 2]),
    ]
    outputs = [
        helper.make_tensor_value_info("end", TensorProto.FLOAT, [1, 2]),
        helper.make_tensor_value_info("all", TensorProto.FLOAT, [1, 3, 2]),
    ]
    graph = helper.make_graph([node], "scan", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=4)
    assert OnnxModel(model).graph.n_ops == 1
