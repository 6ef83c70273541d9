"""Whether all names in a model are text: protobuf hands out damaged ones as bytes."""

from collections.abc import Iterator

from onnx import FunctionProto, GraphProto, ModelProto, TypeProto

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.onnx.operators.nodes import subgraphs_of


def check_text(model: ModelProto, where: str) -> None:
    """Raise MalformedInputError for a name, in a graph or a function, that is no valid UTF-8."""
    for text in _texts(model):
        if isinstance(text, bytes):
            raise MalformedInputError(f"{where} holds the name {text!r}, which is no valid UTF-8; the file is damaged")


def _texts(model: ModelProto) -> Iterator[str | bytes]:
    yield from (entry.domain for entry in model.opset_import)
    yield from _graph_texts(model.graph)
    for function in model.functions:
        yield from (function.name, function.domain, function.overload)
        yield from (*function.input, *function.output, *function.attribute)
        yield from (entry.domain for entry in function.opset_import)
        yield from (attribute.name for attribute in function.attribute_proto)
        yield from _node_texts(function)


def _graph_texts(graph: GraphProto) -> Iterator[str | bytes]:
    yield graph.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        yield from _type_texts(value.type)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (tensor.values.name for tensor in graph.sparse_initializer)
    yield from _node_texts(graph)


def _node_texts(graph: GraphProto | FunctionProto) -> Iterator[str | bytes]:
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, node.overload)
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
        for _, inner in subgraphs_of(node):
            yield from _graph_texts(inner)


def _type_texts(value_type: TypeProto) -> Iterator[str | bytes]:
    for dim in value_type.tensor_type.shape.dim:
        yield dim.dim_param
