"""Operators of ONNX Runtime's own, which shape inference does not know, replaced in skeletons by standard ones.

Files that ONNX Runtime has optimized offline consist of these to a good part, and state no shapes.
"""

from collections.abc import Callable, Mapping

from onnx import GraphProto, NodeProto, TensorProto, defs, helper

from lowtide.frameworks.onnx.operators.nodes import attribute_of, operator_of
from lowtide.frameworks.onnx.operators.tables import SAME_SHAPE, STAND_INS, Operator


def use_stand_in(node: NodeProto, graph: GraphProto) -> None:
    """Turn a node of a skeleton into a standard one whose first output has the same shape, where there is one."""
    operator = operator_of(node)
    if operator in SAME_SHAPE:
        _become(node, "Identity", 1)
    elif operator in STAND_INS:
        _become(node, *STAND_INS[operator])
    elif operator in _SPECIAL:
        _SPECIAL[operator](node, graph)


def _become(node: NodeProto, name: str, n_inputs: int) -> None:
    node.domain, node.op_type = "", name
    del node.input[n_inputs:]
    del node.output[1:]
    allowed = defs.get_schema(name).attributes
    kept = [attribute for attribute in node.attribute if attribute.name in allowed]
    del node.attribute[:]
    node.attribute.extend(kept)


def _fused_matmul(node: NodeProto, graph: GraphProto) -> None:
    """Multiply matrices of which one or both may come transposed."""
    flags = {name: attribute_of(node, name) for name in ("transA", "transB", "transBatchA", "transBatchB")}
    turned = {name for name, attribute in flags.items() if attribute is not None and attribute.i}
    if turned & {"transBatchA", "transBatchB"}:
        return
    left, right = "ji" if "transA" in turned else "ij", "kj" if "transB" in turned else "jk"
    _become(node, "Einsum", 2)
    node.attribute.append(helper.make_attribute("equation", f"...{left},...{right}->...ik"))


def _reorder_output(node: NodeProto, graph: GraphProto) -> None:
    """Come back from the blocked layout, which pads channels: take the first so many."""
    channels, last = attribute_of(node, "channels"), attribute_of(node, "channels_last")
    if channels is None or channels.i < 1 or (last is not None and last.i):
        return
    indices = f"first {channels.i} channels"
    if all(tensor.name != indices for tensor in graph.initializer):
        graph.initializer.append(
            TensorProto(
                name=indices, data_type=TensorProto.INT64, dims=[channels.i], data_location=TensorProto.EXTERNAL
            )
        )
    _become(node, "Gather", 1)
    node.input.append(indices)
    node.attribute.append(helper.make_attribute("axis", 1))


def _upsample(node: NodeProto, graph: GraphProto) -> None:
    """Grow by whole numbers in the blocked layout."""
    scales = attribute_of(node, "scales")
    if scales is None:
        return
    factors = [float(scale) for scale in scales.ints]
    name = f"scales {factors}"
    if all(tensor.name != name for tensor in graph.initializer):
        graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, [len(factors)], factors))
    _become(node, "Resize", 1)
    del node.attribute[:]
    node.input.extend(["", name])


_SPECIAL: Mapping[Operator, Callable[[NodeProto, GraphProto], None]] = {
    ("com.microsoft", "FusedMatMul"): _fused_matmul,
    ("com.microsoft.nchwc", "ReorderOutput"): _reorder_output,
    ("com.microsoft.nchwc", "Upsample"): _upsample,
}
