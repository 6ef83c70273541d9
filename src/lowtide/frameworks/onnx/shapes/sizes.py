"""Bytes of ONNX values: element types, packed types, whole tensors."""

import math
from collections.abc import Mapping, Sequence

from onnx import SparseTensorProto, TensorProto, TypeProto

from lowtide.core.errors import MalformedInputError

BITS: Mapping[int, int] = {
    TensorProto.FLOAT: 32,
    TensorProto.UINT8: 8,
    TensorProto.INT8: 8,
    TensorProto.UINT16: 16,
    TensorProto.INT16: 16,
    TensorProto.INT32: 32,
    TensorProto.INT64: 64,
    TensorProto.STRING: 256,
    TensorProto.BOOL: 8,
    TensorProto.FLOAT16: 16,
    TensorProto.DOUBLE: 64,
    TensorProto.UINT32: 32,
    TensorProto.UINT64: 64,
    TensorProto.COMPLEX64: 64,
    TensorProto.COMPLEX128: 128,
    TensorProto.BFLOAT16: 16,
    TensorProto.FLOAT8E4M3FN: 8,
    TensorProto.FLOAT8E4M3FNUZ: 8,
    TensorProto.FLOAT8E5M2: 8,
    TensorProto.FLOAT8E5M2FNUZ: 8,
    TensorProto.UINT4: 4,
    TensorProto.INT4: 4,
    23: 4,  # FLOAT4E2M1; this and the next three have no name in onnx 1.17
    24: 8,  # FLOAT8E8M0
    25: 2,  # UINT2
    26: 2,  # INT2
}
"""Bits of one element; types below a byte are packed, a string counts with its 32-byte handle and without its text."""


def tensor_bytes(element_type: int, shape: Sequence[int], name: str) -> int:
    """Return the bytes of a tensor; raises MalformedInputError for an unknown type or a negative dimension."""
    bits = BITS.get(element_type)
    if bits is None:
        raise MalformedInputError(f"value {name!r} has element type {element_type}, which ONNX does not define")
    if any(dim < 0 for dim in shape):
        raise MalformedInputError(f"value {name!r} has a negative dimension in {list(shape)}; give it a size or a name")
    return (math.prod(shape) * bits + 7) // 8


def static_shape(value_type: TypeProto) -> list[int] | None:
    """Return a dense tensor type's shape, or None where any of it is unknown.

    Inference gives negative sizes to values of branches that are never taken; they are unknown, too.
    """
    if not value_type.HasField("tensor_type") or not value_type.tensor_type.HasField("shape"):
        return None
    dims = value_type.tensor_type.shape.dim
    sizes = [dim.dim_value for dim in dims if dim.HasField("dim_value")]
    return sizes if len(sizes) == len(dims) and all(size >= 0 for size in sizes) else None


def type_bytes(value_type: TypeProto, name: str) -> int | None:
    """Return the bytes of a dense tensor of this type; None for other types, and where the type or shape is unknown."""
    shape = static_shape(value_type)
    element_type = value_type.tensor_type.elem_type
    if shape is None or element_type == TensorProto.UNDEFINED:
        return None
    return tensor_bytes(element_type, shape, name)


def initializer_bytes(tensor: TensorProto) -> int:
    """Return the bytes of a weight; its data may lie in another file."""
    return tensor_bytes(tensor.data_type, tensor.dims, tensor.name)


def dense_twin(tensor: SparseTensorProto) -> TensorProto:
    """Return what the runtime makes of a sparse weight as it loads it: a dense one, here without its elements."""
    return TensorProto(
        name=tensor.values.name,
        data_type=tensor.values.data_type,
        dims=tensor.dims,
        data_location=TensorProto.EXTERNAL,
    )
