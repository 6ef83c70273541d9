"""How often a Loop runs decides the size of what it collects: where the file tells the number, it is known."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from lowtide.onnx import OnnxModel
from tests.frameworks.onnx.conftest import node, value

RUNS = 3


def _loop(count: TensorProto | NodeProto) -> ModelProto:
    """Give a Loop that collects four floats a run, so often as a weight or a node says."""
    body = helper.make_graph(
        [node("Exp", "s", "s2"), node("Identity", "c", "c2"), node("Neg", "s2", "piece")],
        "body",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("s", [4])],
        [value("c2", [], TensorProto.BOOL), value("s2", [4]), value("piece", [4])],
    )
    nodes = [count] if isinstance(count, NodeProto) else []
    weights = [count] if isinstance(count, TensorProto) else []
    nodes += [node("Loop", "n - x", "last pieces", body=body), node("Exp", "pieces", "y")]
    outputs = [value("last", [4]), value("y", ["runs", 4])]
    graph = helper.make_graph(nodes, "loop", [value("x", [4])], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _tensor(content: Any, kind: Any = np.int64) -> TensorProto:
    return numpy_helper.from_array(np.array(content, kind), "n")


@pytest.mark.parametrize(
    "count",
    [
        _tensor(RUNS),
        _tensor([RUNS]),
        node("Constant", "", "n", value=_tensor(RUNS)),
        node("Constant", "", "n", value_int=RUNS),
        node("Constant", "", "n", value_ints=[RUNS]),
    ],
    ids=["weight", "list", "tensor", "integer", "integers"],
)
def test_what_a_loop_collects_has_a_size_where_the_file_tells_how_often_it_runs(count: TensorProto | NodeProto) -> None:
    graph = OnnxModel(_loop(count)).graph
    assert graph.unmodeled == ()
    assert graph.sizes[graph.buffer_names.index("y")] == RUNS * 16


@pytest.mark.parametrize(
    "count",
    [_tensor([]), _tensor([2, 3]), _tensor(np.nan, np.float32), _tensor("three", np.object_)],
    ids=["nothing", "two numbers", "no number", "text"],
)
def test_a_count_that_is_no_whole_number_tells_nothing(count: TensorProto) -> None:
    """What is collected counts as 0 bytes then, and that is said."""
    graph = OnnxModel(_loop(count)).graph
    assert any("'pieces'" in note and "counts as 0 bytes" in note for note in graph.unmodeled)
