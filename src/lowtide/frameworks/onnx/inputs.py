"""Random inputs for a model, from the types of its inputs and a seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorShapeProto, helper

from lowtide.errors import UnsupportedError

Array = NDArray[Any]


def random_inputs(model: ModelProto, dims: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
    """Return inputs by name: normal floats, integers 0 and 1 (safe as indices), random booleans.

    Raises UnsupportedError for inputs that are no dense tensors of numbers numpy knows.
    """
    generator = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs: dict[str, Array] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        if not value.type.HasField("tensor_type"):
            raise UnsupportedError(f"input {value.name!r} is no tensor, so it cannot be made up; leave out --measure")
        tensor = value.type.tensor_type
        shape = [_size(dim, f"{value.name}.{axis}", dims) for axis, dim in enumerate(tensor.shape.dim)]
        inputs[value.name] = _random_tensor(generator, tensor.elem_type, shape, value.name)
    return inputs


def _size(dim: TensorShapeProto.Dimension, place: str, dims: Mapping[str, int]) -> int:
    return dim.dim_value if dim.HasField("dim_value") else dims[dim.dim_param or place]


def _random_tensor(generator: np.random.Generator, element_type: int, shape: Sequence[int], name: str) -> Array:
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element_type))
    if dtype.kind in "iu" and dtype.isbuiltin:
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "fc" and dtype.isbuiltin:
        return np.asarray(generator.standard_normal(shape), dtype)
    raise UnsupportedError(f"input {name!r} has elements of type {dtype}, which cannot be made up; leave out --measure")
