"""Shapes that the runtime knows on loading: dimensions may be names."""

from collections.abc import Collection, Hashable, Iterator, Mapping

from onnx import GraphProto, ModelProto, ValueInfoProto
from onnx.shape_inference import infer_shapes

from lowtide.frameworks.onnx.operators.nodes import default_opset, subgraphs_of
from lowtide.frameworks.onnx.shapes.carried_sizes import carries_sizes, give_carried_sizes
from lowtide.frameworks.onnx.shapes.tensors import BITS

Form = tuple[Hashable, ...]
"""Bits per element, then shape."""

Forms = Mapping[str, Form]


def known_forms(model: ModelProto, skeleton: ModelProto) -> Forms:
    """Return the runtime's forms of values, subgraphs included.

    Source: Graph::InferAndVerifyTypeMatch of ONNX Runtime 1.31: stated shapes, and shapes that follow from inputs,
    weights and carried sizes.
    """
    light = ModelProto()
    light.CopyFrom(skeleton)
    light.graph.value_info.extend(model.graph.value_info)
    try:
        return _inferred(light, model)
    except Exception:  # the file contradicts itself; the runtime then ignores it
        del light.graph.value_info[:]
        return _inferred(light, model)


def _inferred(light: ModelProto, model: ModelProto) -> Forms:
    # Inference invents further names, which mean nothing.
    values = [*model.graph.input, *model.graph.value_info]
    names = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim}
    opset, carries = default_opset(model), carries_sizes()
    while True:
        forms = forms_in(infer_shapes(light).graph, names)
        shapes = {name: sizes for name, (_, *sizes) in forms.items()}
        if not (carries and give_carried_sizes(light.graph, shapes, opset)):
            return forms


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
