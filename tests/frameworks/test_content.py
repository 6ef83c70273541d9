"""What a file is, is told by what it holds: by its name only where that does not tell."""

from pathlib import Path

import onnx
import pytest
from onnx import helper

import lowtide
from lowtide.caffe2 import NetDef, OperatorDef, write_net
from lowtide.core.errors import InputError
from lowtide.engine.graph import GraphBuilder, write_graph_file
from lowtide.frameworks.content import kind_of_file
from lowtide.frameworks.graph_file import GraphModel
from lowtide.frameworks.tensorflow.graphs.messages import to_text
from tests.frameworks.tensorflow.small_graphs import chain

NET = NetDef(name="n", op=[OperatorDef(type="Relu", input=["x"], output=["y"])], external_input=["x"])
GRAPH = chain(["Relu"])


def _files(folder: Path) -> dict[str, bytes]:
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:]), ir_version=8)
    builder = GraphBuilder("g")
    builder.add_op("op", "op", writes=[builder.add_buffer("b", 4)])
    write_graph_file(builder.build(), folder / "a.graph.json")
    return {
        "json": (folder / "a.graph.json").read_bytes(),
        "onnx": model.SerializeToString(),
        "caffe2": write_net(NET, "a.pb"),
        "caffe2 text": b"# text\n\n" + write_net(NET, "a.pbtxt"),
        "tensorflow": GRAPH.SerializeToString(),
        "tensorflow text": b"# text\n\n" + to_text(GRAPH.SerializeToString(), "graph"),
    }


@pytest.mark.parametrize("kind", ["json", "onnx", "caffe2", "caffe2 text", "tensorflow", "tensorflow text"])
@pytest.mark.parametrize("name", ["model", "model.pb", "model.onnx", "model.pbtxt", "model.json", "model.txt"])
def test_the_content_counts_and_not_the_name(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(_files(tmp_path)[kind])
    assert kind_of_file(str(path)) == kind.split()[0]
    model = lowtide.open_model(path, {"x.0": 4} if "caffe2" in kind else None)
    assert model.graph.n_ops == 1
    assert isinstance(model, GraphModel) == (kind == "json")


@pytest.mark.parametrize("content", [b"", b"\x00", b"nobody knows", b"PK\x03\x04", b"\xff" * 50, b"\x0a\x03abc"])
def test_what_tells_nothing_goes_by_its_name(tmp_path: Path, content: bytes) -> None:
    for ending in (".pb", ".onnx", ".pbtxt"):
        path = tmp_path / f"model{ending}"
        path.write_bytes(content)
        assert kind_of_file(str(path)) is None
        with pytest.raises(InputError):
            lowtide.read(path)
    assert kind_of_file(str(tmp_path / "missing.pb")) is None
