"""A copy of a model for shape inference."""

from collections.abc import Callable, Mapping

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, defs, helper

from lowtide.frameworks.onnx.operators.nodes import (
    all_nodes,
    attribute_of,
    domain_of,
    int_of,
    operator_of,
    subgraphs_of,
)
from lowtide.frameworks.onnx.operators.tables import FROM_BLOCKED, SAME_SHAPE, STAND_INS, Operator
from lowtide.frameworks.onnx.shapes.tensors import dense_twin, is_short


def skeleton_of(model: ModelProto) -> ModelProto:
    """Return a copy of a model without weights, and with shapes of inputs only, since others may be stale."""
    light = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    imported = {domain_of(entry.domain) for entry in model.opset_import}
    for domain in sorted({domain_of(node.domain) for node in all_nodes(model.graph)} - imported):
        light.opset_import.add(domain=domain, version=1)  # inference skips its operators
    graph = light.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    made = {name for node in model.graph.node for name in node.output}
    graph.output.extend(value for value in model.graph.output if value.name in made)  # inputs keep their shapes
    graph.initializer.extend(_without_data(tensor) for tensor in model.graph.initializer)
    graph.initializer.extend(map(dense_twin, model.graph.sparse_initializer))
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    _slim(graph)
    if any(node.domain == CHANNELS_LAST.domain for node in all_nodes(graph)):
        light.functions.append(CHANNELS_LAST)
        light.opset_import.add(domain=CHANNELS_LAST.domain, version=1)
    return light


def _slim(graph: GraphProto) -> None:
    del graph.value_info[:]
    for node in graph.node:
        use_stand_in(node, graph)
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.CopyFrom(_without_data(attribute.t))
        for _, inner in subgraphs_of(node):
            light = [_without_data(tensor) for tensor in inner.initializer]
            light.extend(map(dense_twin, inner.sparse_initializer))
            del inner.initializer[:]
            del inner.sparse_initializer[:]
            inner.initializer.extend(light)
            _slim(inner)


def _without_data(tensor: TensorProto) -> TensorProto:
    if is_short(tensor):
        return tensor
    return TensorProto(
        name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=TensorProto.EXTERNAL
    )


def use_stand_in(node: NodeProto, graph: GraphProto) -> None:
    """Turn a node into a standard one of the same first output shape, if any."""
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
    if not any(int_of(node, name) for name in ("transA", "transB", "transBatchA", "transBatchB")):
        _become(node, "MatMul", 2)
        return
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in graph.input}
    ranks |= {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    left, right = (
        _matrix(node, operand, axes, "" if ranks.get(name) == len("ij") else "...")
        for operand, axes, name in (("A", "ij", node.input[0]), ("B", "jk", node.input[1]))
    )
    batch = "..." if "." in left + right else ""
    _become(node, "Einsum", 2)
    node.attribute.append(helper.make_attribute("equation", f"{left},{right}->{batch}ik"))


def _matrix(node: NodeProto, operand: str, axes: str, batch: str) -> str:
    """Return an operand's axes; inference knows no batch axes of operands that differ in rank."""
    rows, columns = reversed(axes) if int_of(node, f"trans{operand}") else axes
    return f"{rows}{batch}{columns}" if int_of(node, f"transBatch{operand}") else f"{batch}{rows}{columns}"


def _reorder_output(node: NodeProto, graph: GraphProto) -> None:
    channels = int_of(node, "channels")
    if channels >= 1 and not int_of(node, "channels_last"):
        _take_channels(node, graph, channels)


def _reorder_input(node: NodeProto, graph: GraphProto) -> None:
    """Pad channels to the number that the reading filter expects."""
    readers = (each for each in graph.node if operator_of(each) == _BLOCKED and each.input[0] == node.output[0])
    found = next(readers, None)
    weights = {} if found is None else {tensor.name: tensor for tensor in graph.initializer}
    filters = None if found is None else weights.get(found.input[1])
    if found is None or filters is None or len(filters.dims) < 2 or int_of(node, "channels_last"):
        _become(node, "Identity", 1)
        return
    groups, per_group = int_of(found, "group", 1), filters.dims[1]
    _take_channels(node, graph, filters.dims[0] if groups > 1 and per_group == 1 else per_group * groups)


def _take_channels(node: NodeProto, graph: GraphProto, channels: int) -> None:
    indices = f"{channels} channels"
    if all(tensor.name != indices for tensor in graph.initializer):
        graph.initializer.append(
            TensorProto(name=indices, data_type=TensorProto.INT64, dims=[channels], data_location=TensorProto.EXTERNAL)
        )
    _become(node, "Gather", 1)
    node.input.append(indices)
    node.attribute.append(helper.make_attribute("axis", 1))


def _convolution_of_integers(node: NodeProto, graph: GraphProto) -> None:
    is_last = int_of(node, "channels_last")
    _become(node, "QLinearConv", 9)
    if is_last:
        node.domain, node.op_type = CHANNELS_LAST.domain, CHANNELS_LAST.name


def _pooling_of_integers(node: NodeProto, graph: GraphProto) -> None:
    if not int_of(node, "channels_last"):
        _become(node, "GlobalAveragePool", 1)


def _operands(name: str, *places: int) -> Callable[[NodeProto, GraphProto], None]:
    def become(node: NodeProto, graph: GraphProto) -> None:
        if len(node.input) > max(places):
            operands = [node.input[place] for place in places]
            _become(node, name, 0)
            node.input.extend(operands)

    return become


def _product_of_integers(node: NodeProto, graph: GraphProto) -> None:
    """Without a zero point, the result is a float and stays unknown."""
    if len(node.input) > 8 and node.input[8]:
        _operands("Gemm", 0, 3)(node, graph)


def _concatenation_of_integers(node: NodeProto, graph: GraphProto) -> None:
    """Each input comes with a scale and a zero point, after the result's."""
    operands = list(node.input[2::3])
    _become(node, "Concat", 0)
    node.input.extend(operands)


_LAYOUT_ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _channels_last() -> FunctionProto:
    inputs = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "b"]
    middle = helper.make_node("QLinearConv", ["x_first", *inputs[1:]], ["y_first"])
    for name in _LAYOUT_ATTRIBUTES:
        kind = AttributeProto.STRING if name == "auto_pad" else AttributeProto.INTS
        middle.attribute.add(name=name, ref_attr_name=name, type=AttributeProto.INT if name == "group" else kind)
    nodes = [
        helper.make_node("Transpose", ["x"], ["x_first"], perm=[0, 3, 1, 2]),
        middle,
        helper.make_node("Transpose", ["y_first"], ["y"], perm=[0, 2, 3, 1]),
    ]
    return helper.make_function(
        "lowtide.shapes", "ChannelsLast", inputs, ["y"], nodes, [helper.make_opsetid("", 17)], list(_LAYOUT_ATTRIBUTES)
    )


CHANNELS_LAST = _channels_last()
"""A convolution of channels-last images, added to skeletons that use it."""


def _upsample(node: NodeProto, graph: GraphProto) -> None:
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


_BLOCKED: Operator = ("com.microsoft.nchwc", "Conv")

_SPECIAL: Mapping[Operator, Callable[[NodeProto, GraphProto], None]] = {
    ("com.microsoft", "FusedMatMul"): _fused_matmul,
    ("com.microsoft", "QLinearConv"): _convolution_of_integers,
    ("com.microsoft", "QLinearGlobalAveragePool"): _pooling_of_integers,
    ("com.microsoft", "QLinearConcat"): _concatenation_of_integers,
    ("com.microsoft", "QLinearAdd"): _operands("Add", 0, 3),
    ("com.microsoft", "QLinearMul"): _operands("Mul", 0, 3),
    ("com.microsoft", "QGemm"): _product_of_integers,
    ("com.microsoft", "DynamicQuantizeMatMul"): _operands("MatMul", 0, 1),
    ("com.microsoft.nchwc", "ReorderInput"): _reorder_input,
    FROM_BLOCKED: _reorder_output,
    ("com.microsoft.nchwc", "Upsample"): _upsample,
}
