"""Kernels of common ops and their gradients."""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.running.workspace import Array
from lowtide.frameworks.caffe2.shapes.rules import channel_axis, reshaped, split_sizes
from lowtide.frameworks.caffe2.shapes.tensor_type import CAFFE2_TYPES

Kernel = Callable[[Sequence[Array], Arguments, int], Sequence[Array]]
_SMALLEST = 1e-20


def _one(compute: Callable[[Array], Array]) -> Kernel:
    return lambda inputs, _settings, _n: [np.ascontiguousarray(compute(inputs[0]))]


def _gradient(compute: Callable[[Array, Array], Array]) -> Kernel:
    return _plain(compute)


def _with_arguments(compute: Callable[[Array, Arguments], Array]) -> Kernel:
    return lambda inputs, settings, _n: [compute(inputs[0], settings)]


def _plain(compute: Callable[..., Array]) -> Kernel:
    return lambda inputs, _settings, _n: [compute(*inputs)]


def _two(compute: Callable[[Array, Array], Array]) -> Kernel:
    def kernel(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
        one, other = inputs
        axis = settings.integer("axis", -1)
        if settings.integer("broadcast") and axis >= 0:
            other = other.reshape(*other.shape, *[1] * (one.ndim - axis - other.ndim))
        return [np.asarray(compute(one, other))]

    return kernel


def _two_gradients(compute: Callable[[Array, Array, Array], tuple[Array, Array]]) -> Kernel:
    def kernel(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
        gradient, *operands = inputs
        if settings.integer("broadcast") and settings.integer("axis", -1) >= 0:
            raise NotImplementedError
        grads = compute(gradient, *operands)
        return [_summed_to(grad, operand.shape) for grad, operand in zip(grads, operands, strict=True)]

    return kernel


def _flatten(x: Array, settings: Arguments) -> Array:
    axis = settings.integer("axis", 1)
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:])).copy()


def _shape(x: Array, settings: Arguments) -> Array:
    return np.asarray([x.shape[axis] for axis in settings.integers("axes") or range(x.ndim)], np.int64)


def _summed_to(array: Array, shape: tuple[int, ...]) -> Array:
    array = array.sum(tuple(range(array.ndim - len(shape))))
    widened = tuple(axis for axis, size in enumerate(shape) if size == 1 != array.shape[axis])
    return np.ascontiguousarray(array.sum(widened, keepdims=True))


def _sum(first: Array, *others: Array) -> Array:
    total = first.copy()
    for other in others:
        total += other
    return total


def _weighted_sum(*inputs: Array) -> Array:
    total = np.zeros_like(inputs[0])
    for array, weight in zip(inputs[::2], inputs[1::2], strict=True):
        total += array * weight.reshape(-1)[0]
    return total


def _dropout(inputs: Sequence[Array], settings: Arguments, n: int) -> list[Array]:
    if not settings.integer("is_test"):
        raise NotImplementedError
    return [inputs[0].copy(), np.ones(inputs[0].shape, np.bool_)][:n]


def sigmoid(x: Array) -> Array:
    return (1 / (1 + np.exp(-x))).astype(x.dtype)


def _rows(array: Array, axis: int = 1) -> Array:
    return array.reshape(prod(array.shape[:axis]), -1)


def _fc(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    x, w, b = inputs
    axis = settings.integer("axis", 1)
    result = _rows(x, axis) @ _rows(w).T + b
    return [result.reshape(*x.shape[:axis], w.shape[0])]


def _fc_gradient(inputs: Sequence[Array], settings: Arguments, n: int) -> list[Array]:
    x, w, dy = inputs
    axis = settings.integer("axis", 1)
    rows = _rows(dy, axis)
    grads = [(rows.T @ _rows(x, axis)).reshape(w.shape), rows.sum(0)]
    return [*grads, (rows @ _rows(w)).reshape(x.shape)][:n]


def _matmul(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    one, other = inputs
    one = one.T if settings.integer("trans_a") else one
    other = other.T if settings.integer("trans_b") else other
    return [np.ascontiguousarray(one) @ np.ascontiguousarray(other)]


def _softmax(x: Array) -> Array:
    rows = _rows(x)
    exponentials = np.exp(rows - rows.max(1, keepdims=True))
    return (exponentials / exponentials.sum(1, keepdims=True)).reshape(x.shape)


def _softmax_gradient(y: Array, dy: Array) -> Array:
    inner = (_rows(y) * _rows(dy)).sum(1, keepdims=True)
    return (_rows(y) * (_rows(dy) - inner)).reshape(y.shape)


def _at_label(x: Array, label: Array) -> tuple[Array, Array]:
    return np.arange(len(x)), label.reshape(-1).astype(np.int64) % x.shape[1]


def _at_least_smallest(x: Array, label: Array) -> Array:
    return np.maximum(x[_at_label(x, label)], np.asarray(_SMALLEST, x.dtype))


def _cross_entropy(x: Array, label: Array) -> Array:
    return -np.log(_at_least_smallest(x, label))


def _cross_entropy_gradient(x: Array, label: Array, dy: Array) -> Array:
    result = np.zeros_like(x)
    result[_at_label(x, label)] = -dy / _at_least_smallest(x, label)
    return result


def _softmax_with_loss(inputs: Sequence[Array], _settings: Arguments, n: int) -> list[Array]:
    x, label = inputs
    y = _softmax(x)
    return [y, np.asarray(_cross_entropy(y, label).mean(), x.dtype)][:n]


def _softmax_with_loss_gradient(x: Array, label: Array, y: Array, dloss: Array) -> Array:
    result = y.copy()
    result[_at_label(x, label)] -= 1
    return result * (dloss.reshape(-1)[0] / len(x))


def _concat(inputs: Sequence[Array], settings: Arguments, n: int) -> list[Array]:
    axis = settings.integer("axis") if settings.integer("add_axis") else channel_axis(settings, inputs[0].ndim)
    joined = np.stack(inputs, axis) if settings.integer("add_axis") else np.concatenate(inputs, axis)
    lengths = [1 if settings.integer("add_axis") else array.shape[axis] for array in inputs]
    return [joined, np.asarray(lengths, np.int32)][:n]


def _split(inputs: Sequence[Array], settings: Arguments, n: int) -> list[Array]:
    x, *lengths = inputs
    axis = channel_axis(settings, x.ndim)
    settings = settings.with_integers("split", lengths[0].tolist()) if lengths else settings
    ends = np.cumsum(split_sizes(x.shape[axis], settings, n))[:-1]
    pieces = np.split(x, ends, axis)
    if settings.integer("add_axis"):
        pieces = [np.squeeze(piece, axis) for piece in pieces]
    return [np.ascontiguousarray(piece) for piece in pieces]


def _reshape(inputs: Sequence[Array], settings: Arguments, n: int) -> list[Array]:
    x, *wanted = inputs
    shape = reshaped(x.shape, wanted[0].tolist() if wanted else settings.integers("shape"))
    return [x.reshape(shape).copy(), np.asarray(x.shape, np.int64)][:n]


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


KERNELS: dict[str, Kernel] = {
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
    "Scale": _with_arguments(lambda x, settings: x * np.asarray(settings.number("scale", 1.0), x.dtype)),
    "Dropout": _dropout,
    "Sum": _plain(_sum),
    "WeightedSum": _plain(_weighted_sum),
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
    "FC": _fc,
    "FCGradient": _fc_gradient,
    "MatMul": _matmul,
    "Softmax": _plain(_softmax),
    "SoftmaxGradient": _gradient(_softmax_gradient),
    "LabelCrossEntropy": _plain(_cross_entropy),
    "LabelCrossEntropyGradient": _plain(_cross_entropy_gradient),
    "AveragedLoss": _with_arguments(lambda x, _settings: np.asarray(x.mean(), x.dtype)),
    "AveragedLossGradient": _gradient(lambda x, dy: np.full_like(x, dy.reshape(-1)[0] / max(x.size, 1))),
    "SumElements": _with_arguments(
        lambda x, settings: np.asarray(x.mean() if settings.integer("average") else x.sum(), x.dtype)
    ),
    "SumElementsGradient": _gradient(lambda x, dy: np.full_like(x, dy.reshape(-1)[0])),
    "SoftmaxWithLoss": _softmax_with_loss,
    "SoftmaxWithLossGradient": _plain(_softmax_with_loss_gradient),
    "Concat": _concat,
    "DepthConcat": _concat,
    "Split": _split,
    "Reshape": _reshape,
    "Shape": _with_arguments(_shape),
    "Flatten": _with_arguments(_flatten),
    "Transpose": _with_arguments(
        lambda x, settings: np.ascontiguousarray(np.transpose(x, settings.integers("axes") or None))
    ),
    "Tile": _with_arguments(
        lambda x, settings: np.concatenate([x] * settings.integer("tiles", 1), settings.integer("axis"))
    ),
    "ConstantFill": _constant,
    "GivenTensorFill": _given,
}
