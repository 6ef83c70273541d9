"""A copy of a model for shape inference: same nodes at the same places, without the weights."""

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, defs

from lowtide.frameworks.onnx.operators import operator_of, subgraphs_of
from lowtide.frameworks.onnx.tables import STAND_INS
from lowtide.frameworks.onnx.tensors import is_short


def skeleton_of(model: ModelProto) -> ModelProto:
    """Return a light copy of a model: no weights, no types but those of inputs and outputs.

    Types that the file states for intermediate values are left out: they may be stale, and inference finds them anew.
    """
    light = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph = light.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    graph.initializer.extend(_without_data(tensor) for tensor in model.graph.initializer)
    graph.sparse_initializer.extend(model.graph.sparse_initializer)
    _slim(graph)
    return light


def _slim(graph: GraphProto) -> None:
    del graph.value_info[:]
    for node in graph.node:
        _use_stand_in(node)
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.CopyFrom(_without_data(attribute.t))
        for _, inner in subgraphs_of(node):
            light = [_without_data(tensor) for tensor in inner.initializer]
            del inner.initializer[:]
            inner.initializer.extend(light)
            _slim(inner)


def _without_data(tensor: TensorProto) -> TensorProto:
    if is_short(tensor):
        return tensor
    return TensorProto(
        name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=TensorProto.EXTERNAL
    )


def _use_stand_in(node: NodeProto) -> None:
    stand_in = STAND_INS.get(operator_of(node))
    if stand_in is None:
        return
    node.domain, (node.op_type, n_inputs) = "", stand_in
    del node.input[n_inputs:]
    del node.output[1:]
    allowed = defs.get_schema(node.op_type).attributes
    kept = [attribute for attribute in node.attribute if attribute.name in allowed]
    del node.attribute[:]
    node.attribute.extend(kept)
