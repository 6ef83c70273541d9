"""Sizes that the installed runtime carries from Shape to other operators."""

from random import Random
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import lowtide
from lowtide.frameworks.onnx.shapes.carried_sizes import carries_sizes
from lowtide.frameworks.onnx.shapes.known_forms import known_forms
from lowtide.frameworks.onnx.shapes.skeleton import skeleton_of
from lowtide.onnx import OnnxModel
from tests.frameworks.onnx.conftest import node, value

SIZES = (2, 3, 4)


def _model(nodes: list[Any], weights: dict[str, Any], dims: Any = SIZES, outputs: Any = None) -> ModelProto:
    given = [numpy_helper.from_array(np.array(content, np.int64), name) for name, content in weights.items()]
    graph = helper.make_graph(nodes, "sizes", [value("x", dims)], outputs or [value("r", None)], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _known_to_the_runtime(model: ModelProto) -> tuple[int, ...] | None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    shape = onnxruntime.InferenceSession(model.SerializeToString(), options).get_outputs()[0].shape
    return tuple(shape) if all(isinstance(size, int) for size in shape) else None


def _known(model: ModelProto) -> tuple[Any, ...] | None:
    light = ModelProto()
    light.CopyFrom(model)
    light.graph.node.append(node("Identity", "r", "after"))
    light.graph.output[0].name = "after"
    form = known_forms(light, skeleton_of(light)).get("r")
    return None if form is None else form[1:]


def _random_sizes(random: Random) -> ModelProto:
    """Return a model that makes a tensor of sizes that random operators compute from a shape."""
    weights: dict[str, Any] = {f"i{place}": place for place in range(3)}
    weights |= {f"l{place}": [place] for place in range(-1, 3)} | {"zero": [0], "one": [1], "ones": [1, 1, 1]}
    nodes = [node("Shape", "x", "t")]
    lists, scalars = ["t"], list[str]()
    for number in range(random.randint(1, 7)):
        name = f"v{number}"
        kind = random.choice(
            ("Shape", "Cast", "Gather", "Gather", "part", "Unsqueeze", "Concat", "Slice", "two", "Identity")
        )
        if kind == "Shape":
            nodes.append(node("Shape", "x", name, start=random.randint(0, 2)))
        elif kind == "Gather":
            nodes.append(node("Gather", f"t i{random.randint(0, 2)}", name))
            scalars.append(name)
            continue
        elif kind == "part":
            nodes.append(node("Gather", f"t l{random.randint(-1, 2)}", name))
        elif kind == "Unsqueeze" and scalars:
            nodes.append(node("Unsqueeze", f"{random.choice(scalars)} zero", name))
        elif kind == "Concat":
            parts = " ".join(random.choice([*lists, "one"] if random.random() < 0.2 else lists) for _ in range(2))
            nodes.append(node("Concat", parts, name, axis=0))
        elif kind == "Slice":
            nodes.append(node("Slice", f"{random.choice(lists)} zero one", name))
        elif kind == "two":
            pool = scalars if scalars and random.random() < 0.5 else ["t", "t", "ones"]
            nodes.append(node(random.choice(("Add", "Sub", "Mul", "Div")), " ".join(random.choices(pool, k=2)), name))
            (scalars if pool is scalars else lists).append(name)
            continue
        else:
            way = ("Cast", {"to": TensorProto.INT64}) if kind == "Cast" else ("Identity", {})
            nodes.append(node(way[0], random.choice(lists), name, **way[1]))
        lists.append(name)
    nodes.append(node("ConstantOfShape", lists[-1], "r"))
    return _model(nodes, weights)


@pytest.mark.skipif(not carries_sizes(), reason="the installed runtime carries no sizes")
def test_sizes_are_known_where_the_runtime_knows_them() -> None:
    """For 300 random computations on shapes."""
    known = 0
    for seed in range(300):
        model = _random_sizes(Random(seed))
        expected = _known_to_the_runtime(model)
        assert _known(model) == expected, seed
        known += expected is not None
    assert 60 < known < 290


@pytest.mark.parametrize("dims", [SIZES, ("a", 3, 4)])
def test_a_chain_of_reshapes_is_known_if_the_input_is(dims: Any) -> None:
    """Each shape is taken from the result of the reshape before."""
    nodes = [node("Exp", "x", "r0")]
    for number in range(4):
        nodes += [node("Shape", f"r{number}", f"t{number}"), node("Reshape", f"x t{number}", f"r{number + 1}")]
    nodes.append(node("Identity", "r4", "r"))
    model = _model(nodes, {}, dims)
    assert _known(model) == (SIZES if dims == SIZES and carries_sizes() else None)
    assert _known(model) == _known_to_the_runtime(model)


@pytest.mark.skipif(not carries_sizes(), reason="the installed runtime carries no sizes")
def test_the_bound_is_no_higher_than_the_measured_peak() -> None:
    """Element-wise ops after a constant of a carried shape run in place."""
    before = [node("Shape", "x", "t"), node("ConstantOfShape", "t", "r")]
    after = [node("Concat", "r r r r", "b", axis=0), node("Relu", "b", "c"), node("Relu", "c", "d")]
    last = node("ReduceMean", "d", "y", keepdims=0)
    model = OnnxModel(_model([*before, *after, last], {}, (64, 64), [value("y", [])]))
    result = lowtide.minimize(model.graph)
    (space,) = result.peak_bytes
    measured = model.measure(result.plan).after_bytes
    assert measured == result.peak_bytes[space] == result.lower_bound_bytes[space]
