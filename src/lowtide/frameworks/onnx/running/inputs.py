"""Reproducible inputs, seeds and comparisons."""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorShapeProto, helper

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.onnx.operators.nodes import all_nodes, attribute_of, fed_inputs, operator_of
from lowtide.frameworks.onnx.operators.tables import RANDOM
from lowtide.frameworks.onnx.shapes.infer import value_types
from lowtide.frameworks.onnx.shapes.tensors import static_shape

Array = NDArray[Any]

_SIZED_BY = {("", "Reshape"): 1, ("", "Expand"): 1, ("", "ConstantOfShape"): 0, ("", "AffineGrid"): 1}
"""Input that holds the result's shape."""
_INTEGER_SEEDS = frozenset({"Dropout", "BiasDropout", "BitmaskDropout", "BitmaskBiasDropout", "Sampling"})


def random_inputs(
    model: ModelProto, dims: Mapping[str, int], seed: int = 0, *, otherwise: str = "leave out --measure"
) -> dict[str, Array]:
    """Return random floats, integers 0 and 1 (safe as indices), and shapes stated by the file, by input.

    `otherwise` is advice for messages. Raises UnsupportedError for inputs that are not dense and numeric, or too large.
    """
    generator = np.random.default_rng(seed)
    inputs: dict[str, Array] = {}
    targets = _targets(model)
    for value in fed_inputs(model.graph):
        if not value.type.HasField("tensor_type"):
            raise UnsupportedError(f"input {value.name!r} is no tensor, so it cannot be random; {otherwise}")
        tensor = value.type.tensor_type
        shape = [_size(dim, f"{value.name}.{axis}", dims) for axis, dim in enumerate(tensor.shape.dim)]
        try:
            made = _random_tensor(generator, tensor.elem_type, shape)
        except (MemoryError, ValueError):  # depends on the size
            raise UnsupportedError(
                f"input {value.name!r} of shape {shape} does not fit in memory; give smaller sizes, or {otherwise}"
            ) from None
        if made is None:
            kind = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            raise UnsupportedError(
                f"input {value.name!r} has elements of type {kind}, which cannot be random; {otherwise}"
            )
        target = targets.get(value.name, ())
        inputs[value.name] = np.asarray(target, made.dtype) if made.shape == (len(target),) else made
    return inputs


def _targets(model: ModelProto) -> Mapping[str, Sequence[int]]:
    stated = value_types(model.graph)
    found: dict[str, Sequence[int]] = {}
    for node in model.graph.node:
        place = _SIZED_BY.get(operator_of(node))
        shape = static_shape(stated[node.output[0]]) if node.output[0] in stated else None
        if place is not None and shape is not None and place < len(node.input):
            is_grid = node.op_type == "AffineGrid"  # its size input has channels as second entry
            found[node.input[place]] = [shape[0], 1, *shape[1:-1]] if is_grid else shape
    return found


def _size(dim: TensorShapeProto.Dimension, place: str, dims: Mapping[str, int]) -> int:
    return dim.dim_value if dim.HasField("dim_value") else dims[dim.dim_param or place]


def _random_tensor(generator: np.random.Generator, element_type: int, shape: Sequence[int]) -> Array | None:
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element_type))
    if dtype.kind in "iub" and dtype.isbuiltin:
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "fc" and dtype.isbuiltin:
        return np.asarray(generator.standard_normal(shape), dtype)
    return None


def digest(outputs: Sequence[Any]) -> str:
    """Return a hash of all bits, types and shapes."""
    found = hashlib.sha256()
    for output in outputs:
        if isinstance(output, np.ndarray):
            array = cast("Array", output)
            content = repr(array.tolist()).encode() if array.dtype == np.object_ else np.ascontiguousarray(array).data
            found.update(f"{array.dtype}{array.shape}".encode())
            found.update(content)
        elif isinstance(output, list):
            found.update(digest(cast("list[Any]", output)).encode())
        else:
            found.update(repr(output).encode())
    return found.hexdigest()


def with_seeds(model: ModelProto) -> ModelProto:
    """Seed every random node by its result's name; by default ONNX Runtime seeds by position and clock."""
    if not any(_lacks_seed(node) for node in all_nodes(model.graph)):
        return model
    seeded = ModelProto()
    seeded.CopyFrom(model)
    for node in all_nodes(seeded.graph):
        if _lacks_seed(node):
            seed = zlib.crc32(node.output[0].encode()) % 2**20
            node.attribute.append(
                helper.make_attribute("seed", seed if node.op_type in _INTEGER_SEEDS else float(seed))
            )
    return seeded


def _lacks_seed(node: NodeProto) -> bool:
    operator = operator_of(node)
    return (operator in RANDOM or operator == ("", "Dropout")) and attribute_of(node, "seed") is None
