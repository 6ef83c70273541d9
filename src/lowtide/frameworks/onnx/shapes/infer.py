"""Shapes of every value, without running anything and without reading weights."""

from collections.abc import Mapping

from onnx import GraphProto, ModelProto, NodeProto, TypeProto, helper
from onnx.shape_inference import infer_shapes

from lowtide.core.errors import MalformedInputError, one_line
from lowtide.frameworks.onnx.operators.nodes import operator_of, subgraphs_of
from lowtide.frameworks.onnx.shapes.dimensions import bind_inputs, bind_rest, bind_type
from lowtide.frameworks.onnx.shapes.fold import fold_shape_computations
from lowtide.frameworks.onnx.shapes.loops import runs_of_loop
from lowtide.frameworks.onnx.shapes.sizes import static_shape
from lowtide.frameworks.onnx.shapes.skeleton import skeleton_of

_MOST_ROUNDS = 32
"""How often inference is run at most; every round follows something new to tell it."""

_CONTRADICTION = "Incompatible dimensions"
"""What inference says of operands whose shapes do not go together."""


def infer_types(model: ModelProto, dims: Mapping[str, int], where: str) -> ModelProto:
    """Infer the types of a model's values; return a light copy that states them, its nodes at the same places.

    Raises UnsupportedError for dynamic dimensions that `dims` does not bind, UsageError for sizes that do not fit,
    MalformedInputError for a model that shape inference refuses.
    """
    light = skeleton_of(model)
    bind_inputs(light.graph, dims, where)
    bind_rest(light.graph, dims)
    return _complete(light, model.graph, dims, where)


def infer_bound_types(model: ModelProto, where: str) -> ModelProto:
    """Infer types as `infer_types` does, but leave dynamic dimensions unknown instead of asking for their sizes."""
    return _complete(skeleton_of(model), model.graph, {}, where)


def value_types(graph: GraphProto) -> dict[str, TypeProto]:
    """Return the types a graph states, by value name; what its subgraphs capture is not among them."""
    types = {value.name: value.type for value in [*graph.value_info, *graph.output, *graph.input]}
    for tensor in graph.initializer:
        types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    return types


def unknown_values(graph: GraphProto) -> list[str]:
    """Return the node outputs whose shape is not known, in graph order."""
    types = value_types(graph)
    return [
        name for node in graph.node for name in node.output if name and (name not in types or not _known(types[name]))
    ]


def _complete(light: ModelProto, stated: GraphProto, dims: Mapping[str, int], where: str) -> ModelProto:
    light = _infer(light, where, strict=True)
    for _ in range(_MOST_ROUNDS):
        if not _add_knowledge(light, stated, dims):
            break
        light = _infer(light, where)
    return light


def _add_knowledge(light: ModelProto, stated: GraphProto, dims: Mapping[str, int]) -> bool:
    """Tell inference something it did not find out by itself; return whether there was anything to tell."""
    if _give_loops_their_shapes(light.graph):
        return True
    if not unknown_values(light.graph):
        return False
    return fold_shape_computations(light, value_types(light.graph)) or _use_stated_types(light.graph, stated, dims)


def _known(value_type: TypeProto) -> bool:
    return not value_type.HasField("tensor_type") or static_shape(value_type) is not None


def _infer(light: ModelProto, where: str, *, strict: bool = False) -> ModelProto:
    """Infer once; where `strict`, shapes that contradict one another are refused, and other doubts are let pass."""
    try:
        return infer_shapes(light, data_prop=True, strict_mode=strict)
    except Exception as error:  # the C++ side raises several types of its own
        if strict and _CONTRADICTION not in str(error):
            return _infer(light, where)
        raise MalformedInputError(f"{where}: shape inference refuses the model: {one_line(error)}") from None


def _use_stated_types(light: GraphProto, stated: GraphProto, dims: Mapping[str, int]) -> bool:
    """Fall back on the types the file states, for values that inference knows nothing of; say if it helped."""
    unknown = set(unknown_values(light))
    types = value_types(light)
    changed = False
    for value in [*stated.value_info, *stated.output]:
        if value.name in unknown:
            value_type = TypeProto()
            value_type.CopyFrom(value.type)
            bind_type(value_type, dims)
            if types.get(value.name) != value_type:
                _state(light, value.name, value_type)
                changed = True
    return changed


def _state(light: GraphProto, name: str, value_type: TypeProto) -> None:
    stated = (value for value in [*light.output, *light.value_info] if value.name == name)
    target = next(stated, None) or light.value_info.add(name=name)
    target.type.CopyFrom(value_type)


def _give_loops_their_shapes(graph: GraphProto) -> bool:
    """Assume that values a loop carries keep the shape they start with, which inference does not; say if it helped."""
    changed = False
    types = value_types(graph)
    for node in graph.node:
        for _, body in subgraphs_of(node):
            if operator_of(node) == ("", "Loop"):
                changed |= _give_loop_its_shapes(graph, node, body, types)
            changed |= _give_loops_their_shapes(body)
    return changed


def _give_loop_its_shapes(graph: GraphProto, node: NodeProto, body: GraphProto, types: dict[str, TypeProto]) -> bool:
    changed = False
    carried = list(zip(node.input[2:], list(body.input)[2:], list(body.output)[1:], strict=False))
    for initial, inner, _ in carried:
        if initial in types and not inner.type.tensor_type.HasField("shape") and _known(types[initial]):
            inner.type.CopyFrom(types[initial])
            changed = True
    for name, (_, inner, result) in zip(node.output, carried, strict=False):
        keeps = _known(result.type) and result.type == inner.type
        if name and keeps and not (name in types and _known(types[name])):
            _state(graph, name, result.type)
            types[name] = result.type
            changed = True
    n_runs = runs_of_loop(graph, node, body)
    n_carried = len(body.input) - 2
    pieces = zip(node.output[n_carried:], body.output[1 + n_carried :], strict=False) if n_runs is not None else ()
    for name, piece in pieces:
        shape = static_shape(piece.type)
        if name and shape is not None and not (name in types and _known(types[name])):
            types[name] = helper.make_tensor_type_proto(piece.type.tensor_type.elem_type, [n_runs, *shape])
            _state(graph, name, types[name])
            changed = True
    return changed
