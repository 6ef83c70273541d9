"""Shapes that the runtime knows on loading: dimensions may be names."""

from collections.abc import Collection, Hashable, Iterator, Mapping

from onnx import GraphProto, ModelProto, ValueInfoProto
from onnx.shape_inference import infer_shapes

from lowtide.frameworks.onnx.operators.nodes import subgraphs_of
from lowtide.frameworks.onnx.shapes.tensors import BITS

Form = tuple[Hashable, ...]
"""Bits per element, then shape."""

Forms = Mapping[str, Form]


def known_forms(model: ModelProto, skeleton: ModelProto) -> Forms:
    """Return the runtime's forms of values, subgraphs included.

    Source: Graph::InferAndVerifyTypeMatch of ONNX Runtime 1.31: stated shapes, and shapes that follow from inputs and
    weights, never from computed values.
    """
    light = ModelProto()
    light.CopyFrom(skeleton)
    light.graph.value_info.extend(model.graph.value_info)
    # Inference invents further names, which mean nothing.
    values = [*model.graph.input, *model.graph.value_info]
    names = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim}
    try:
        return forms_in(infer_shapes(light).graph, names)
    except Exception:  # the file contradicts itself; the runtime then ignores it
        del light.graph.value_info[:]
        return forms_in(infer_shapes(light).graph, names)


def forms_in(graph: GraphProto, names: Collection[str] = ()) -> dict[str, Form]:
    """Return the forms that a graph states; dimensions may be in `names`."""
    found = dict(_forms([*graph.value_info, *graph.input], names))
    for node in graph.node:
        for _, inner in subgraphs_of(node):
            found |= forms_in(inner, names)
    return found


def _forms(values: Collection[ValueInfoProto], names: Collection[str]) -> Iterator[tuple[str, Form]]:
    for value in values:
        tensor = value.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]
        if tensor.HasField("shape") and all(isinstance(dim, int) or dim in names for dim in dims):
            yield value.name, (BITS.get(tensor.elem_type), *dims)
