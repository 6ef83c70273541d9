"""Dynamic dimensions and their sizes."""

from collections.abc import Iterator, Mapping

from onnx import GraphProto, TensorShapeProto, TypeProto, ValueInfoProto

from lowtide.core.errors import MalformedInputError, UnsupportedError, UsageError
from lowtide.frameworks.onnx.operators.nodes import fed_inputs, plain, subgraphs_of


def dynamic_dimensions(graph: GraphProto) -> list[str]:
    """Return the names of the inputs' dynamic dimensions in order; one without a name is called "tokens.1", by input
    and axis.
    """
    names = (name for value in fed_inputs(graph) for name, _ in _open_dimensions(value))
    return list(dict.fromkeys(names))


def bind_inputs(graph: GraphProto, dims: Mapping[str, int], where: str) -> None:
    """Write sizes into the types of inputs, in place.

    Raises UnsupportedError listing missing sizes, UsageError for unknown names and negative sizes, MalformedInputError
    for inputs without a type.
    """
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
        for name, dim in _open_dimensions(value):
            dim.dim_value = dims[name]


def bind_rest(graph: GraphProto, dims: Mapping[str, int]) -> None:
    """Apply `bind_type` to outputs and all subgraphs."""
    for value in graph.output:
        bind_type(value.type, dims)
    for node in graph.node:
        for _, inner in subgraphs_of(node):
            for value in inner.input:
                bind_type(value.type, dims)
            bind_rest(inner, dims)


def bind_type(value_type: TypeProto, dims: Mapping[str, int]) -> None:
    """Write the sizes in `dims` into a type and remove other names, in place."""
    for dim in value_type.tensor_type.shape.dim if value_type.HasField("tensor_type") else ():
        name = dim.dim_param
        if name:
            dim.Clear()
            if name in dims:
                dim.dim_value = dims[name]


def _open_dimensions(value: ValueInfoProto) -> Iterator[tuple[str, TensorShapeProto.Dimension]]:
    if not value.type.HasField("tensor_type"):
        return
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if not dim.HasField("dim_value"):
            yield dim.dim_param or f"{value.name}.{axis}", dim
        elif dim.dim_value < 0:
            raise MalformedInputError(f"input {value.name!r} has dimension {dim.dim_value}; give it a size or a name")
