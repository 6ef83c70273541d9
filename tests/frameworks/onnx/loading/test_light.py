"""Weights are never read: not those in other files, and not those in the model's own."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper

from lowtide.core.errors import InputError
from lowtide.frameworks.onnx.loading.load import light_model
from lowtide.onnx import OnnxModel


def _heavy(n_elements: int) -> ModelProto:
    """A model with long weights everywhere: initializers, Constant nodes, branches of an If."""

    def inner(name: str) -> Any:
        weight = numpy_helper.from_array(np.arange(n_elements, dtype=np.float32), f"{name}_w")
        node = helper.make_node("Add", ["x", f"{name}_w"], [f"{name}_y"])
        value = helper.make_tensor_value_info(f"{name}_y", 1, [n_elements])
        return helper.make_graph([node], name, [], [value], [weight])

    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones(n_elements, np.float32))),
        helper.make_node("If", ["flag"], ["chosen"], then_branch=inner("then"), else_branch=inner("other")),
        helper.make_node("Sum", ["chosen", "c", "w", "short"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(np.arange(n_elements, dtype=np.float32), "w"),
        numpy_helper.from_array(np.ones(1, np.float32), "short"),
        helper.make_tensor("unpacked", 1, [n_elements], [0.5] * n_elements),
    ]
    inputs = [helper.make_tensor_value_info("flag", 9, []), helper.make_tensor_value_info("x", 1, [n_elements])]
    outputs = [helper.make_tensor_value_info("y", 1, [n_elements])]
    graph = helper.make_graph(nodes, "heavy", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_what_is_held_of_a_model_does_not_grow_with_its_weights(tmp_path: Path) -> None:
    """The light copy of a model with weights a hundred times as long has the same length, and gives the same graph."""
    lights = [light_model(_heavy(n).SerializeToString()) for n in (2_000, 200_000)]
    assert abs(len(lights[0]) - len(lights[1])) < 100
    model = _heavy(200_000)
    onnx.save(model, tmp_path / "heavy.onnx")
    assert OnnxModel(tmp_path / "heavy.onnx").graph.fingerprint == OnnxModel(model).graph.fingerprint


def test_short_tensors_stay(case: Any) -> None:
    """A model without long tensors is as it was, byte for byte."""
    content = case.make().SerializeToString()
    assert ModelProto.FromString(light_model(content)).graph.node == case.make().graph.node


def test_all_weights_are_written(tmp_path: Path, plan_of: Any) -> None:
    """The saved file has every element, from a reader that held none."""
    model = _heavy(5_000)
    onnx.save(model, tmp_path / "heavy.onnx")
    read = OnnxModel(tmp_path / "heavy.onnx")
    read.save(plan_of(read, 1), tmp_path / "out.onnx")
    saved = onnx.load(tmp_path / "out.onnx")
    assert saved.graph.initializer == model.graph.initializer
    assert sorted(n.SerializeToString() for n in saved.graph.node) == sorted(
        n.SerializeToString() for n in model.graph.node
    )


def test_a_file_that_changed_since_is_refused(cases: dict[str, Any], tmp_path: Path, plan_of: Any) -> None:
    """Nodes are found by their places: those of another file would be mixed up."""
    path = tmp_path / "m.onnx"
    onnx.save(cases["conv_net"].make(), path)
    model = OnnxModel(path)
    plan = plan_of(model, 0)
    onnx.save(cases["views"].make(), path)
    with pytest.raises(InputError, match="changed"):
        model.save(plan, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
