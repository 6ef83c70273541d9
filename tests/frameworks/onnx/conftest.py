"""Small ONNX models made by hand, one per feature of the format, and random valid orders for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from lowtide.engine.analysis import Problem, simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.onnx import OnnxModel
from tests.oracles.random_plans import random_order

Shape = Sequence[int | str] | None


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    """Make a node; names are separated by blanks, "-" stands for one that is left out."""
    reads, writes = ([("" if name == "-" else name) for name in names.split()] for names in (inputs, outputs))
    return helper.make_node(op, reads, writes, **attributes)


def value(name: str, shape: Shape, element_type: int = TensorProto.FLOAT) -> ValueInfoProto:
    """Make the description of a value."""
    return helper.make_tensor_value_info(name, element_type, shape)


def weight(name: str, *shape: int) -> TensorProto:
    """Make a weight of small floats."""
    generator = np.random.default_rng(sum(name.encode()))
    return numpy_helper.from_array(generator.normal(0, 0.2, shape).astype(np.float32), name)


def integers(name: str, *content: int) -> TensorProto:
    """Make a list of integers."""
    return numpy_helper.from_array(np.array(content, np.int64), name)


def model_of(graph: GraphProto, functions: Sequence[FunctionProto] = (), opset: int = 17) -> ModelProto:
    """Wrap a graph."""
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)


def conv_net() -> ModelProto:
    """Give two branches of convolutions that meet in a concatenation, with a classifier behind them."""
    nodes = [
        node("Conv", "image w0 b0", "c0", pads=[1, 1, 1, 1], name="stem"),
        node("Relu", "c0", "r0", name="stem_relu"),
        node("Conv", "r0 w1", "c1", name="left"),
        node("BatchNormalization", "c1 s m s v", "n1", name="left_norm"),
        node("Relu", "n1", "r1", name="left_relu"),
        node("Conv", "r0 w2", "c2", name="right"),
        node("Sigmoid", "c2", "g2", name="right_gate"),
        node("Mul", "c2 g2", "r2", name="right_swish"),
        node("Concat", "r1 r2", "both", axis=1, name="join"),
        node("GlobalAveragePool", "both", "pooled", name="pool"),
        node("Flatten", "pooled", "flat", name="flatten"),
        node("Gemm", "flat w3 b3", "logits", name="classifier"),
        node("Softmax", "logits", "probabilities", name="softmax"),
    ]
    weights = [weight("w0", 8, 3, 3, 3), weight("b0", 8), weight("w1", 16, 8, 1, 1), weight("w2", 4, 8, 1, 1)]
    weights += [weight("w3", 20, 10), weight("b3", 10), weight("s", 16), weight("m", 16)]
    weights.append(numpy_helper.from_array(np.full(16, 0.5, np.float32), "v"))
    graph = helper.make_graph(
        nodes, "conv_net", [value("image", [1, 3, 32, 32])], [value("probabilities", [1, 10])], weights
    )
    return model_of(graph)


def attention() -> ModelProto:
    """Give masked self-attention over dynamic batch and length; target shapes are computed in the graph."""
    nodes = [
        node("Shape", "x", "x_shape", name="shape"),
        node("Gather", "x_shape zero", "batch", name="batch"),
        node("Gather", "x_shape one", "length", name="length"),
        node("Concat", "batch length heads width", "split", axis=0, name="split_shape"),
        node("Concat", "batch length minus", "merged", axis=0, name="merge_shape"),
        *(
            made
            for part in "qkv"
            for made in (
                node("MatMul", f"x w{part}", f"{part}0", name=f"project_{part}"),
                node("Reshape", f"{part}0 split", f"{part}1", name=f"split_{part}"),
                node("Transpose", f"{part}1", part, perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3], name=part),
            )
        ),
        node("MatMul", "q k", "scores", name="scores"),
        node("Where", "mask scores low", "masked", name="mask_scores"),
        node("Softmax", "masked", "weights", name="softmax"),
        node("MatMul", "weights v", "mixed", name="mix"),
        node("Transpose", "mixed", "mixed_t", perm=[0, 2, 1, 3], name="back"),
        node("Reshape", "mixed_t merged", "joined", name="merge"),
        node("MatMul", "joined wo", "projected", name="project_out"),
        node("Add", "projected x", "y", name="residual"),
    ]
    weights = [weight(f"w{part}", 32, 32) for part in "qkvo"]
    weights += [integers("zero", 0), integers("one", 1), integers("heads", 4), integers("width", 8)]
    weights += [integers("minus", -1), numpy_helper.from_array(np.array(-1e9, np.float32), "low")]
    inputs = [value("x", ["batch", "length", 32]), value("mask", ["length", "length"], TensorProto.BOOL)]
    return model_of(helper.make_graph(nodes, "attention", inputs, [value("y", ["batch", "length", 32])], weights))


def control_flow() -> ModelProto:
    """Give an If, a Loop and a Scan whose bodies capture values from around them."""
    then = helper.make_graph(
        [node("Exp", "x", "t1"), node("Tanh", "x", "t2"), node("Add", "t1 t2", "t3"), node("Relu", "t3", "then_out")],
        "then", [], [value("then_out", [64])],
    )  # fmt: skip
    other = helper.make_graph([node("Neg", "x", "else_out")], "other", [], [value("else_out", [64])])
    loop = helper.make_graph(
        [
            node("Sin", "state", "l1"),
            node("Cos", "state", "l2"),
            node("Mul", "l1 l2", "l3"),
            node("Add", "l3 x", "next"),
            node("Identity", "going", "goes_on"),
        ],
        "loop",
        [value("i", [], TensorProto.INT64), value("going", [], TensorProto.BOOL), value("state", [64])],
        [value("goes_on", [], TensorProto.BOOL), value("next", [64])],
    )
    scan = helper.make_graph(
        [node("Add", "sum row", "sum_out"), node("Exp", "sum_out", "s1"), node("Neg", "s1", "row_out")],
        "scan", [value("sum", [64]), value("row", [64])], [value("sum_out", [64]), value("row_out", [64])],
    )  # fmt: skip
    nodes = [
        node("If", "flag", "chosen", then_branch=then, else_branch=other, name="if"),
        node("Exp", "x", "start", name="start"),
        node("Loop", "count flag start", "looped", body=loop, name="loop"),
        node("Exp", "rows", "rows2", name="rows"),
        node("Scan", "looped rows2", "total scanned", body=scan, num_scan_inputs=1, name="scan"),
        node("Add", "scanned chosen", "shifted", name="shift"),
        node("ReduceSum", "shifted", "y", keepdims=0, name="reduce"),
    ]
    inputs = [value("x", [64]), value("rows", [5, 64]), value("flag", [], TensorProto.BOOL)]
    outputs = [value("y", []), value("total", [64])]
    weights = [numpy_helper.from_array(np.array(3, np.int64), "count")]
    return model_of(helper.make_graph(nodes, "control_flow", inputs, outputs, weights))


def functions() -> ModelProto:
    """Give a model with a local function that calls another one, used twice with different sizes."""
    gate = helper.make_function(
        "local", "Gate", ["a"], ["b"], [node("Sigmoid", "a", "s"), node("Mul", "a s", "b")],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    layer = helper.make_function(
        "local", "Layer", ["a", "w"], ["b"],
        [node("MatMul", "a w", "m"), node("Gate", "m", "g", domain="local"), node("Add", "m g", "b")],
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
    )  # fmt: skip
    nodes = [
        node("Layer", "x w0", "h", domain="local", name="first"),
        node("Exp", "x", "e", name="side"),
        node("Layer", "h w1", "y0", domain="local", name="second"),
        node("MatMul", "e w1", "e1", name="side_project"),
        node("Add", "y0 e1", "y", name="join"),
    ]
    weights = [weight("w0", 32, 32), weight("w1", 32, 64)]
    graph = helper.make_graph(nodes, "functions", [value("x", [16, 32])], [value("y", [16, 64])], weights)
    return model_of(graph, [gate, layer])


def views() -> ModelProto:
    """Give chains of views, views that become outputs, results nobody reads, and shapes of everything."""
    nodes = [
        node("Constant", "", "two_d", value=integers("", 16, 24), name="target"),
        node("Sin", "x", "a", name="a"),
        node("Reshape", "a two_d", "v1", name="v1"),
        node("Unsqueeze", "v1 axis", "v2", name="v2"),
        node("Identity", "v2", "v3", name="v3"),
        node("Relu", "v3", "r", name="r"),
        node("Flatten", "r", "flat", name="flat_out"),
        node("TopK", "x k", "top unread", name="topk"),
        node("Shape", "v2", "shape", name="shape"),
        node("Size", "top", "size", name="size"),
        node("Squeeze", "v2", "nobody", name="nobody"),
        node("ReduceSum", "r", "sum", keepdims=0, name="sum"),
        node("Cast", "size", "size_f", to=TensorProto.FLOAT, name="cast"),
        node("Add", "sum size_f", "y", name="y"),
        node("Concat", "shape shape", "shapes", axis=0, name="shapes"),
    ]
    outputs = [value("y", []), value("flat", [1, 384]), value("shapes", [6], TensorProto.INT64)]
    graph = helper.make_graph(nodes, "views", [value("x", [12, 32])], outputs, [integers("axis", 0), integers("k", 8)])
    return model_of(graph)


@dataclass(frozen=True)
class Case:
    """A model, the sizes of its dynamic dimensions, and how far from the prediction a measurement may lie."""

    make: Callable[[], ModelProto]
    dims: dict[str, int] = field(default_factory=dict)
    above_bytes: int = 0
    below_bytes: int = 0


CASES = {
    "conv_net": Case(conv_net),
    "attention": Case(attention, {"batch": 2, "length": 10}),
    "control_flow": Case(control_flow, above_bytes=64 * 4),
    "functions": Case(functions, below_bytes=16 * 32 * 4),  # a call holds its argument to its end, the runtime does not
    "views": Case(views),
}


@pytest.fixture(name="case", params=list(CASES))
def case_fixture(request: pytest.FixtureRequest) -> Case:
    """Give every model in turn."""
    return CASES[request.param]


@pytest.fixture(name="cases")
def cases_fixture() -> dict[str, Case]:
    """Give all models by name."""
    return CASES


def random_plan(graph: Graph, seed: int) -> Plan:
    """Plan a random order of a graph and of everything it calls, taking all in-place pairs that fit."""
    callees: dict[str, Plan] = {}
    for name in dict.fromkeys(name for names in graph.callees for name in names):
        plan = random_plan(graph.subgraphs[name], seed + 1)
        callees[name] = replace(plan, peak_bytes=simulate(graph.subgraphs[name], plan).peak_bytes)
    return Problem(graph, callees).plan(np.asarray(random_order(graph, Random(seed)), np.int32))


@pytest.fixture(name="plan_of")
def plan_fixture() -> Callable[[OnnxModel, int], Plan]:
    """Give the function that plans a random order of a model from a seed."""
    return lambda model, seed: random_plan(model.graph, seed)


@pytest.fixture(name="peak_of")
def peak_fixture() -> Callable[[OnnxModel, Plan], int]:
    """Give the function that predicts a plan's peak."""
    return lambda model, plan: sum(simulate(model.graph, plan).peak_bytes.values())
