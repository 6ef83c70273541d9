"""Types of all values, inferred in rounds."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, helper
from onnx.shape_inference import infer_shapes

from lowtide.core.errors import MalformedInputError, UnsupportedError, UsageError, one_line
from lowtide.frameworks.onnx.operators.nodes import fed_inputs, operator_of, plain, subgraphs_of
from lowtide.frameworks.onnx.shapes.fold import fold_shape_computations
from lowtide.frameworks.onnx.shapes.skeleton import skeleton_of
from lowtide.frameworks.onnx.shapes.tensors import array_of, short_constants, static_shape

_MOST_ROUNDS = 32

_CONTRADICTION = "Incompatible dimensions"


def infer_types(model: ModelProto, skeleton: ModelProto, dims: Mapping[str, int], where: str) -> ModelProto:
    """Return a copy of a model's skeleton with the types of its values.

    Raises UnsupportedError for dimensions missing in `dims`, UsageError for wrong sizes, MalformedInputError if
    inference refuses the model.
    """
    light = ModelProto()
    light.CopyFrom(skeleton)
    _bind_inputs(light.graph, dims, where)
    _bind_rest(light.graph, dims)
    return _complete(light, model.graph, dims, where)


def infer_bound_types(model: ModelProto, where: str) -> ModelProto:
    """Infer types, with dynamic dimensions unknown."""
    return _complete(skeleton_of(model), model.graph, {}, where)


def value_types(graph: GraphProto) -> dict[str, TypeProto]:
    """Return the types stated in a graph, by name."""
    types = {value.name: value.type for value in [*graph.value_info, *graph.output, *graph.input]}
    for tensor in graph.initializer:
        types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    return types


def _complete(light: ModelProto, stated: GraphProto, dims: Mapping[str, int], where: str) -> ModelProto:
    light = _infer(light, where, strict=True)
    for _ in range(_MOST_ROUNDS):
        if not _add_knowledge(light, stated, dims):
            break
        light = _infer(light, where)
    return light


def _add_knowledge(light: ModelProto, stated: GraphProto, dims: Mapping[str, int]) -> bool:
    if _give_loops_their_shapes(light.graph):
        return True
    types = value_types(light.graph)
    outputs = {name for node in light.graph.node for name in node.output if name}
    unknown = {name for name in outputs if name not in types or not _known(types[name])}
    if not unknown:
        return False
    if fold_shape_computations(light, types):
        return True
    changed = False
    for value in (*stated.value_info, *stated.output):
        if value.name in unknown:
            value_type = TypeProto()
            value_type.CopyFrom(value.type)
            _bind_type(value_type, dims)
            if types.get(value.name) != value_type:
                _state(light.graph, value.name, value_type)
                changed = True
    return changed


def _known(value_type: TypeProto) -> bool:
    return not value_type.HasField("tensor_type") or static_shape(value_type) is not None


def _infer(light: ModelProto, where: str, *, strict: bool = False) -> ModelProto:
    """Infer once; if `strict`, refuse contradictions but retry on other doubts."""
    try:
        return infer_shapes(light, data_prop=True, strict_mode=strict)
    except Exception as error:  # the C++ code raises several types
        if strict and _CONTRADICTION not in str(error):
            return _infer(light, where)
        raise MalformedInputError(f"{where}: shape inference refuses the model: {one_line(error)}") from None


def _state(light: GraphProto, name: str, value_type: TypeProto) -> None:
    stated = (value for value in [*light.output, *light.value_info] if value.name == name)
    target = next(stated, None) or light.value_info.add(name=name)
    target.type.CopyFrom(value_type)


def _give_loops_their_shapes(graph: GraphProto) -> bool:
    """Assume that carried values keep their shapes."""
    changed = False
    types = value_types(graph)
    for node in graph.node:
        for _, body in subgraphs_of(node):
            if operator_of(node) == ("", "Loop"):
                changed |= _give_loop_its_shapes(graph, node, body, types)
            changed |= _give_loops_their_shapes(body)
    return changed


def _give_loop_its_shapes(graph: GraphProto, node: NodeProto, body: GraphProto, types: dict[str, TypeProto]) -> bool:
    learned: dict[str, TypeProto] = {}
    is_given = False
    carried = list(zip(node.input[2:], list(body.input)[2:], list(body.output)[1:], strict=False))
    for initial, inner, _ in carried:
        if initial in types and not inner.type.tensor_type.HasField("shape") and _known(types[initial]):
            inner.type.CopyFrom(types[initial])
            is_given = True
    for name, (_, inner, result) in zip(node.output, carried, strict=False):
        if _known(result.type) and result.type == inner.type:
            learned[name] = result.type
    n_runs = _runs_of_loop(graph, node, body)
    n_carried = len(body.input) - 2
    for name, piece in zip(node.output[n_carried:], body.output[1 + n_carried :], strict=False):
        shape = static_shape(piece.type)
        if n_runs is not None and shape is not None:
            learned[name] = helper.make_tensor_type_proto(piece.type.tensor_type.elem_type, [n_runs, *shape])
    new = {name: kind for name, kind in learned.items() if name and not (name in types and _known(types[name]))}
    for name, kind in new.items():
        _state(graph, name, kind)
    types.update(new)
    return is_given or bool(new)


def _runs_of_loop(graph: GraphProto, node: NodeProto, body: GraphProto) -> int | None:
    if len(body.input) < 2 or not body.output or not _goes_on(body):
        return None
    constants = short_constants(graph)
    first = _integer(constants, node.input[1]) if len(node.input) > 1 and node.input[1] else True
    count = _integer(constants, node.input[0]) if node.input and node.input[0] else None
    return None if first is None or count is None else max(count, 0) if first else 0


def _goes_on(body: GraphProto) -> bool:
    condition, given = body.output[0].name, body.input[1].name
    makers = {name: inner for inner in body.node for name in inner.output}
    while condition in makers and operator_of(makers[condition]) == ("", "Identity"):
        condition = makers[condition].input[0]
    return condition == given


def _integer(constants: Mapping[str, TensorProto], name: str) -> int | None:
    array = array_of(constants[name]) if name in constants else None
    return int(array.item()) if array is not None and array.size == 1 and array.dtype.kind in "iub" else None


def dynamic_dimensions(graph: GraphProto) -> list[str]:
    """Return the inputs' dynamic dimensions in order; "tokens.1", by input and axis, without a name."""
    names = (name for value in fed_inputs(graph) for _, name, _ in _open_dimensions(value))
    return list(dict.fromkeys(names))


def sizes_of(value: ValueInfoProto, given: Any) -> list[tuple[str, int]]:
    """Return an input's dynamic sizes in an array or OrtValue; raises ValueError for another rank."""
    shape = getattr(given, "shape", None)
    sizes: Any = shape() if callable(shape) else np.shape(given)
    axes = len(value.type.tensor_type.shape.dim)
    if value.type.HasField("tensor_type") and len(sizes) != axes:
        raise ValueError(f"input {value.name!r} has {len(sizes)} axes, not {axes}")
    return [(name, int(sizes[axis])) for axis, name, _ in _open_dimensions(value)]


def _bind_inputs(graph: GraphProto, dims: Mapping[str, int], where: str) -> None:
    names = dynamic_dimensions(graph)
    for name, size in dims.items():
        if name not in names:
            known = ", ".join(map(plain, names)) or "none"
            raise UsageError(f"{where} has no dynamic dimension {name!r}; it has: {known}")
        if size < 0:
            raise UsageError(f"dimension {name!r} is {size}; sizes must not be negative")
    missing = [plain(name) for name in names if name not in dims]
    if missing:
        remedy = " ".join(f"--dim {name}=N" for name in missing)
        raise UnsupportedError(f"{where} has dynamic dimensions without a size: {', '.join(missing)}; give {remedy}")
    for value in fed_inputs(graph):
        if value.type.WhichOneof("value") is None:
            raise MalformedInputError(f"{where}: input {value.name!r} has no type; export the model again")
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            raise UnsupportedError(f"{where}: input {value.name!r} has no rank; export the model with a shape for it")
        for _, name, dim in _open_dimensions(value):
            dim.dim_value = dims[name]


def _bind_rest(graph: GraphProto, dims: Mapping[str, int]) -> None:
    for value in graph.output:
        _bind_type(value.type, dims)
    for node in graph.node:
        for _, inner in subgraphs_of(node):
            for value in inner.input:
                _bind_type(value.type, dims)
            _bind_rest(inner, dims)


def _bind_type(value_type: TypeProto, dims: Mapping[str, int]) -> None:
    for dim in value_type.tensor_type.shape.dim if value_type.HasField("tensor_type") else ():
        name = dim.dim_param
        if name:
            dim.Clear()
            if name in dims:
                dim.dim_value = dims[name]


def _open_dimensions(value: ValueInfoProto) -> Iterator[tuple[int, str, TensorShapeProto.Dimension]]:
    if not value.type.HasField("tensor_type"):
        return
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if not dim.HasField("dim_value"):
            yield axis, dim.dim_param or f"{value.name}.{axis}", dim
        elif dim.dim_value < 0:
            raise MalformedInputError(f"input {value.name!r} has dimension {dim.dim_value}; give it a size or a name")
