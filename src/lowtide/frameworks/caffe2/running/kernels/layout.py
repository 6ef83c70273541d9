"""Ops that move elements and compute nothing, and fills."""

from collections.abc import Sequence
from math import prod

import numpy as np

from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.running.kernels.kernel import Array, Kernel
from lowtide.frameworks.caffe2.shapes.rules import channel_axis, reshaped, split_sizes
from lowtide.frameworks.caffe2.shapes.tensor_type import CAFFE2_TYPES


def _concat(inputs: Sequence[Array], settings: Arguments, n: int) -> list[Array]:
    axis = settings.integer("axis") if settings.integer("add_axis") else channel_axis(settings, inputs[0].ndim)
    joined = np.stack(inputs, axis) if settings.integer("add_axis") else np.concatenate(inputs, axis)
    lengths = [1 if settings.integer("add_axis") else array.shape[axis] for array in inputs]
    return [joined, np.asarray(lengths, np.int32)][:n]


def _split(inputs: Sequence[Array], settings: Arguments, n: int) -> list[Array]:
    x, *lengths = inputs
    axis = channel_axis(settings, x.ndim)
    told = settings.with_integers("split", lengths[0].tolist()) if lengths else settings
    ends = np.cumsum(split_sizes(x.shape[axis], told, n))[:-1]
    pieces = np.split(x, ends, axis)
    if settings.integer("add_axis"):
        pieces = [np.squeeze(piece, axis) for piece in pieces]
    return [np.ascontiguousarray(piece) for piece in pieces]


def _shape(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    shape = inputs[0].shape
    return [np.asarray([shape[axis] for axis in settings.integers("axes") or range(len(shape))], np.int64)]


def _reshape(inputs: Sequence[Array], settings: Arguments, n: int) -> list[Array]:
    x, *wanted = inputs
    shape = reshaped(x.shape, wanted[0].tolist() if wanted else settings.integers("shape"))
    return [x.reshape(shape).copy(), np.asarray(x.shape, np.int64)][:n]


def _flatten(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    shape, axis = inputs[0].shape, settings.integer("axis", 1)
    return [inputs[0].reshape(prod(shape[:axis]), prod(shape[axis:])).copy()]


def _transpose(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    return [np.ascontiguousarray(np.transpose(inputs[0], settings.integers("axes") or None))]


def _tile(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    return [np.concatenate([inputs[0]] * settings.integer("tiles", 1), settings.integer("axis"))]


def _constant(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    kind = CAFFE2_TYPES.get(settings.integer("dtype", 1), "float32")
    shape = inputs[0].shape if inputs else tuple(settings.integers("shape"))
    if inputs and settings.integer("input_as_shape"):
        shape = tuple(inputs[0].tolist())
    value = settings.number("value") if "float" in kind else settings.integer("value")
    return [np.full(shape, value, kind)]


def _given(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    shape = inputs[0].shape if inputs else tuple(settings.integers("shape"))
    return [np.asarray(settings.numbers("values"), np.float32).reshape(shape)]


LAYOUT: dict[str, Kernel] = {
    "Concat": _concat,
    "DepthConcat": _concat,
    "Split": _split,
    "Reshape": _reshape,
    "Shape": _shape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Tile": _tile,
    "ConstantFill": _constant,
    "GivenTensorFill": _given,
}
