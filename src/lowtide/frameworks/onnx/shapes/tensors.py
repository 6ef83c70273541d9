"""Bytes of tensors, and content of short ones."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, SparseTensorProto, TensorProto, TypeProto, helper, numpy_helper

from lowtide.core.errors import MalformedInputError, one_line
from lowtide.frameworks.onnx.operators.nodes import operator_of
from lowtide.frameworks.onnx.operators.tables import CONSTANTS

BITS: Mapping[int, int] = {
    TensorProto.STRING: 256,
    TensorProto.COMPLEX128: 128,
    **dict.fromkeys((TensorProto.INT64, TensorProto.UINT64, TensorProto.DOUBLE, TensorProto.COMPLEX64), 64),
    **dict.fromkeys((TensorProto.INT32, TensorProto.UINT32, TensorProto.FLOAT), 32),
    **dict.fromkeys((TensorProto.INT16, TensorProto.UINT16, TensorProto.FLOAT16, TensorProto.BFLOAT16), 16),
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL, TensorProto.FLOAT8E4M3FN), 8),
    **dict.fromkeys((TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ), 8),
    **dict.fromkeys((TensorProto.INT4, TensorProto.UINT4), 4),
    **dict(zip(range(23, 27), (4, 8, 2, 2), strict=True)),  # FLOAT4E2M1, FLOAT8E8M0, UINT2, INT2; onnx 1.19 lacks some
}
"""Per element; small types are packed, strings count as 32-byte handles."""


def tensor_bytes(element_type: int, shape: Sequence[int], name: str) -> int:
    """Return a tensor's bytes; raises MalformedInputError for unknown types and negative dimensions."""
    bits = BITS.get(element_type)
    if bits is None:
        raise MalformedInputError(f"value {name!r} has element type {element_type}, which ONNX does not define")
    if any(dim < 0 for dim in shape):
        raise MalformedInputError(f"value {name!r} has a negative dimension in {list(shape)}; give it a size or a name")
    return (math.prod(shape) * bits + 7) // 8


def static_shape(value_type: TypeProto) -> list[int] | None:
    """Return a dense tensor's shape, None if unknown or, in branches never taken, negative."""
    if not value_type.HasField("tensor_type") or not value_type.tensor_type.HasField("shape"):
        return None
    dims = value_type.tensor_type.shape.dim
    sizes = [dim.dim_value for dim in dims if dim.HasField("dim_value")]
    return sizes if len(sizes) == len(dims) and all(size >= 0 for size in sizes) else None


def shape_in(types: Mapping[str, TypeProto], name: str) -> list[int] | None:
    return static_shape(types[name]) if name in types else None


def bytes_like(types: Mapping[str, TypeProto], name: str, elements: int) -> int:
    return elements * BITS.get(types[name].tensor_type.elem_type, 0) // 8


def type_bytes(value_type: TypeProto, name: str) -> int | None:
    shape = static_shape(value_type)
    element_type = value_type.tensor_type.elem_type
    if shape is None or element_type == TensorProto.UNDEFINED:
        return None
    return tensor_bytes(element_type, shape, name)


def dense_twin(tensor: SparseTensorProto) -> TensorProto:
    """Return the runtime's dense tensor of a sparse weight, without elements."""
    return TensorProto(
        name=tensor.values.name, data_type=tensor.values.data_type, dims=tensor.dims, data_location=TensorProto.EXTERNAL
    )


MOST_ELEMENTS = 1024
"""Larger tensors decide no shapes."""


def is_short(tensor: TensorProto) -> bool:
    return tensor.data_location != TensorProto.EXTERNAL and math.prod(tensor.dims) <= MOST_ELEMENTS


def array_of(tensor: TensorProto) -> NDArray[Any]:
    """Return a short tensor's content; raises MalformedInputError if data and dimensions disagree."""
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise MalformedInputError(f"tensor {tensor.name!r} contradicts its declaration: {one_line(error)}") from None


def short_constants(graph: GraphProto) -> Mapping[str, TensorProto]:
    """Return short weights and results of Constant nodes, by name."""
    given = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        content = _content(node) if operator_of(node) in CONSTANTS else None
        if content is not None:
            given[node.output[0]] = content
    return {name: tensor for name, tensor in given.items() if is_short(tensor)}


def _content(constant: NodeProto) -> TensorProto | None:
    for attribute in constant.attribute:
        if attribute.name == "value":
            return attribute.t
        if attribute.name == "value_int":
            return helper.make_tensor(constant.output[0], TensorProto.INT64, [], [attribute.i])
        if attribute.name == "value_ints":
            return helper.make_tensor(constant.output[0], TensorProto.INT64, [len(attribute.ints)], attribute.ints)
    return None
