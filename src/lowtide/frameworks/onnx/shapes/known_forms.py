"""What the runtime knows of shapes before it runs: dimensions may be names, and nothing is computed with shapes."""

from collections.abc import Collection, Hashable, Iterator, Mapping

from onnx import GraphProto, ModelProto, ValueInfoProto
from onnx.shape_inference import infer_shapes

from lowtide.frameworks.onnx.operators.nodes import subgraphs_of
from lowtide.frameworks.onnx.shapes.sizes import BITS
from lowtide.frameworks.onnx.shapes.skeleton import skeleton_of

Form = tuple[Hashable, ...]
"""The bits of an element, then the shape."""

Forms = Mapping[str, Form]
"""By value, its form; without those whose shape is not known."""


def known_forms(model: ModelProto) -> Forms:
    """Return what the runtime knows of the values of a model and of its subgraphs when it loads it.

    Source: Graph::InferAndVerifyTypeMatch of ONNX Runtime 1.31: shapes that the file states, and those that follow from
    inputs and weights; the content of a value that only a run computes is never known, even where it is a shape.
    """
    light = skeleton_of(model)
    light.graph.value_info.extend(model.graph.value_info)
    # Inference makes up names for dimensions, which say nothing: two of the same name are no more equal than others.
    values = [*model.graph.input, *model.graph.value_info]
    names = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim}
    try:
        return forms_in(infer_shapes(light).graph, names)
    except Exception:  # what the file states contradicts itself: the runtime believes its own inference then, too
        del light.graph.value_info[:]
        return forms_in(infer_shapes(light).graph, names)


def forms_in(graph: GraphProto, names: Collection[str] = ()) -> dict[str, Form]:
    """Return the forms that a graph and its subgraphs state; dimensions may have one of some names."""
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
