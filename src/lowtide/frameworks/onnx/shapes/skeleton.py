"""A copy of a model for shape inference: same nodes at the same places, without the weights."""

from onnx import GraphProto, ModelProto, TensorProto

from lowtide.frameworks.onnx.operators.nodes import all_nodes, domain_of, subgraphs_of
from lowtide.frameworks.onnx.shapes.short_tensors import is_short
from lowtide.frameworks.onnx.shapes.sizes import dense_twin
from lowtide.frameworks.onnx.shapes.stand_ins import CHANNELS_LAST, use_stand_in


def skeleton_of(model: ModelProto) -> ModelProto:
    """Return a light copy of a model: no weights, no shapes but those of inputs.

    Shapes that the file states for other values are left out: they may be stale, and inference finds them anew.
    """
    light = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    imported = {domain_of(entry.domain) for entry in model.opset_import}
    for domain in sorted({domain_of(node.domain) for node in all_nodes(model.graph)} - imported):
        light.opset_import.add(domain=domain, version=1)  # the runtime knows its own, and inference passes over it
    graph = light.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
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
