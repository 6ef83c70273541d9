"""Random graphs against ONNX Runtime: for any program in any order the predicted peak is the measured one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from lowtide.engine.plan import Plan
from lowtide.onnx import OnnxModel
from tests.examples import examples

WIDTH = 16
UNARY = ["Exp", "Neg", "Relu", "Sigmoid", "Softmax", "Clip", "Identity", "Dropout", "HardSwish"]
IN_PLACE = ["Relu", "Sigmoid", "Softmax", "Clip", "Cast"]
KINDS = [*UNARY, "Cast", "Add", "Mul", "Where", "Concat", "Split", "TopK", "Reshape", "Unsqueeze", "Shape", "Sum"]


class Net:
    """A graph that grows: float values of shape [rows, WIDTH] by name."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {"x0": 4, "x1": 6}
        self.nodes: list[NodeProto] = []
        self.others: list[str] = []

    def add(self, op: str, inputs: Sequence[str], rows: int, **attributes: Any) -> str:
        """Add a node with one result of that many rows."""
        name = f"v{len(self.rows)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{len(self.nodes)}", **attributes))
        self.rows[name] = rows
        return name

    def add_other(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Add a node whose results are of another kind."""
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"n{len(self.nodes)}", **attributes))
        self.others.extend(outputs)


def grow(net: Net, kind: str, one: str, other: str) -> None:
    """Add one or two nodes of a kind that read the given values."""
    rows, serial = net.rows[one], len(net.nodes)
    if kind in UNARY:
        net.add(kind, [one], rows)
    elif kind == "Cast":
        net.add_other("Cast", [one], [f"i{serial}"], to=TensorProto.INT32)
        net.add("Cast", [f"i{serial}"], rows, to=TensorProto.FLOAT)
    elif kind in ("Add", "Mul", "Sum"):
        net.add(kind, [one, other if net.rows[other] == rows else one], rows)
    elif kind == "Where":
        net.add_other("IsNaN", [one], [f"b{serial}"])
        net.add("Where", [f"b{serial}", one, "zero"], rows)
    elif kind == "Concat" and rows + net.rows[other] <= 64:
        net.add("Concat", [one, other], rows + net.rows[other], axis=0)
    elif kind == "Split" and rows % 2 == 0:
        parts = [f"v{len(net.rows)}", f"v{len(net.rows) + 1}"]
        net.nodes.append(helper.make_node("Split", [one], parts, axis=0, name=f"n{serial}"))
        net.rows.update(dict.fromkeys(parts, rows // 2))
    elif kind == "TopK":
        net.add_other("TopK", [one, "four"], [f"t{serial}", f"i{serial}"])
    elif kind == "Reshape":
        net.add("Reshape", [one, "flat"], rows)
        net.nodes[-1].output[0], flat = f"f{serial}", net.nodes[-1].output[0]
        net.nodes.append(helper.make_node("Reshape", [f"f{serial}", "wide"], [flat], name=f"n{serial + 1}"))
    elif kind == "Unsqueeze":
        net.add_other("Unsqueeze", [one, "axis"], [f"u{serial}"])
    elif kind == "Shape" and one not in ("x0", "x1"):
        net.add_other("Shape", [one], [f"s{serial}"])


@st.composite
def models(draw: Callable[..., Any]) -> ModelProto:
    """Draw a model: random nodes over random earlier values, some of the results as outputs."""
    net = Net()
    for _ in range(draw(st.integers(2, 14))):
        names = list(net.rows)
        grow(net, draw(st.sampled_from(KINDS)), draw(st.sampled_from(names)), draw(st.sampled_from(names)))
    made = [name for node in net.nodes for name in node.output if name not in ("x0", "x1")]
    if not made:
        made = [net.add("Exp", ["x0"], net.rows["x0"])]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    # Whether the runtime frees a result that nothing reads depends on whether it was computed in place: avoid those.
    read = {name for node in net.nodes for name in node.input}
    unread = [name for node in net.nodes if node.op_type in IN_PLACE for name in node.output if name not in read]
    outputs = list(dict.fromkeys([*outputs, *unread]))
    weights = [
        numpy_helper.from_array(np.zeros((), np.float32), "zero"),
        *(
            numpy_helper.from_array(np.array(content, np.int64), name)
            for name, content in (("four", [4]), ("flat", [-1]), ("wide", [-1, WIDTH]), ("axis", [0]))
        ),
    ]
    inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [net.rows[f"x{i}"], WIDTH]) for i in (0, 1)]
    graph = helper.make_graph(
        net.nodes, "random", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], weights
    )
    bare = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(bare)


@settings(examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=models(), seed=st.integers(0, 1000))
def test_predicted_is_measured(
    plan_of: Callable[..., Plan], peak_of: Callable[..., int], model: ModelProto, seed: int
) -> None:
    """The measured peak equals the prediction, and the outputs stay the same bit for bit."""
    read = OnnxModel(model)
    plan = plan_of(read, seed)
    onnx.checker.check_model(read.apply(plan))
    measured = read.measure(plan)
    assert measured.outputs_equal
    # The runtime takes shapes at once, the model together with the op before them or where the plan says.
    shapes = sum(node.op_type == "Shape" for node in model.graph.node)
    # A plan in the file's order leaves the file as it is, with a view that nobody reads where it stands.
    if list(plan.order()) != list(range(read.graph.n_ops)) or not has_unread_views(model):
        assert abs(peak_of(read, plan) - measured.after_bytes) <= 16 * shapes, onnx.printer.to_text(read.apply(plan))
    if not len(read.graph.in_place.values) and not has_unread_views(model):
        assert abs(peak_of(read, Plan.baseline(read.graph)) - measured.before_bytes) <= 16 * shapes


def has_unread_views(model: ModelProto) -> bool:
    """Return whether a view is made that nobody reads; where it stands in the file then matters to the runtime."""
    used = {name for node in model.graph.node for name in node.input} | {value.name for value in model.graph.output}
    views = (node for node in model.graph.node if node.op_type in ("Identity", "Reshape", "Unsqueeze"))
    return any(node.output[0] not in used for node in views)
