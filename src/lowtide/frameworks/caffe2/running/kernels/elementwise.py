"""Ops on one element at a time, and their gradients."""

from collections.abc import Callable, Sequence

import numpy as np

from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.running.kernels.kernel import Array, Kernel


def _one(compute: Callable[[Array], Array]) -> Kernel:
    return lambda inputs, _settings, _n: [np.ascontiguousarray(compute(inputs[0]))]


def _gradient(compute: Callable[[Array, Array], Array]) -> Kernel:
    """Inputs are what the op gave and the gradient of that."""
    return lambda inputs, _settings, _n: [compute(inputs[0], inputs[1])]


def _two(compute: Callable[[Array, Array], Array]) -> Kernel:
    def kernel(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
        one, other = inputs
        axis = settings.integer("axis", -1)
        if settings.integer("broadcast") and axis >= 0:
            other = other.reshape(*other.shape, *[1] * (one.ndim - axis - other.ndim))
        return [np.asarray(compute(one, other))]

    return kernel


def _sum(inputs: Sequence[Array], _settings: Arguments, _n: int) -> list[Array]:
    total = inputs[0].copy()
    for other in inputs[1:]:
        total += other
    return [total]


def _weighted_sum(inputs: Sequence[Array], _settings: Arguments, _n: int) -> list[Array]:
    total = np.zeros_like(inputs[0])
    for array, weight in zip(inputs[::2], inputs[1::2], strict=True):
        total += array * weight.reshape(-1)[0]
    return [total]


def _two_gradients(compute: Callable[[Array, Array, Array], tuple[Array, Array]]) -> Kernel:
    """Inputs are the gradient of what the op gave, and both of its inputs; gradients have their shapes."""

    def kernel(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
        gradient, *operands = inputs
        if settings.integer("broadcast") and settings.integer("axis", -1) >= 0:
            raise NotImplementedError
        grads = compute(gradient, *operands)
        return [_summed_to(grad, operand.shape) for grad, operand in zip(grads, operands, strict=True)]

    return kernel


def _summed_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Return an array summed over the axes that broadcasting made or widened."""
    array = array.sum(tuple(range(array.ndim - len(shape))))
    widened = tuple(axis for axis, size in enumerate(shape) if size == 1 != array.shape[axis])
    return np.ascontiguousarray(array.sum(widened, keepdims=True))


def _scale(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    return [inputs[0] * np.asarray(settings.number("scale", 1.0), inputs[0].dtype)]


def _dropout(inputs: Sequence[Array], settings: Arguments, n: int) -> list[Array]:
    if not settings.integer("is_test"):
        raise NotImplementedError
    return [inputs[0].copy(), np.ones(inputs[0].shape, np.bool_)][:n]


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x))."""
    return (1 / (1 + np.exp(-x))).astype(x.dtype)


ELEMENTWISE: dict[str, Kernel] = {
    **dict.fromkeys(
        ("Copy", "CopyCPUToGPU", "CopyGPUToCPU", "CopyFromCPUInput", "CopyToCPU", "CopyOnDeviceLike", "StopGradient"),
        _one(np.copy),
    ),
    "Relu": _one(lambda x: np.maximum(x, np.asarray(0, x.dtype))),
    "Sigmoid": _one(sigmoid),
    "Tanh": _one(np.tanh),
    "Exp": _one(np.exp),
    "Negative": _one(np.negative),
    "Abs": _one(np.abs),
    "Sqr": _one(np.square),
    "Scale": _scale,
    "Dropout": _dropout,
    "Sum": _sum,
    "WeightedSum": _weighted_sum,
    "Add": _two(np.add),
    "Sub": _two(np.subtract),
    "Mul": _two(np.multiply),
    "Div": _two(np.divide),
    "ReluGradient": _gradient(lambda y, dy: dy * (y > 0)),
    "SigmoidGradient": _gradient(lambda y, dy: dy * y * (1 - y)),
    "TanhGradient": _gradient(lambda y, dy: dy * (1 - y * y)),
    "AddGradient": _two_gradients(lambda dz, _x, _y: (dz, dz)),
    "SubGradient": _two_gradients(lambda dz, _x, _y: (dz, -dz)),
    "MulGradient": _two_gradients(lambda dz, x, y: (dz * y, dz * x)),
}
