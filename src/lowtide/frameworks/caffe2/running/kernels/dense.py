"""Matrix products, reductions and losses, and their gradients."""

from collections.abc import Sequence
from math import prod

import numpy as np

from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.running.kernels.kernel import Array, Kernel

_SMALLEST = 1e-20


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


def _softmax_of(x: Array) -> Array:
    rows = _rows(x)
    exponentials = np.exp(rows - rows.max(1, keepdims=True))
    return (exponentials / exponentials.sum(1, keepdims=True)).reshape(x.shape)


def _softmax(inputs: Sequence[Array], _settings: Arguments, _n: int) -> list[Array]:
    return [_softmax_of(inputs[0])]


def _softmax_gradient(inputs: Sequence[Array], _settings: Arguments, _n: int) -> list[Array]:
    y, dy = inputs
    inner = (_rows(y) * _rows(dy)).sum(1, keepdims=True)
    return [(_rows(y) * (_rows(dy) - inner)).reshape(y.shape)]


def _picked(x: Array, label: Array) -> tuple[Array, Array]:
    return np.arange(len(x)), label.reshape(-1).astype(np.int64) % x.shape[1]


def _cross_entropy(inputs: Sequence[Array], _settings: Arguments, _n: int) -> list[Array]:
    x, label = inputs
    return [-np.log(np.maximum(x[_picked(x, label)], np.asarray(_SMALLEST, x.dtype)))]


def _cross_entropy_gradient(inputs: Sequence[Array], _settings: Arguments, _n: int) -> list[Array]:
    x, label, dy = inputs
    result = np.zeros_like(x)
    result[_picked(x, label)] = -dy / np.maximum(x[_picked(x, label)], np.asarray(_SMALLEST, x.dtype))
    return [result]


def _averaged(inputs: Sequence[Array], _settings: Arguments, _n: int) -> list[Array]:
    return [np.asarray(inputs[0].mean(), inputs[0].dtype)]


def _averaged_gradient(inputs: Sequence[Array], _settings: Arguments, _n: int) -> list[Array]:
    x, dy = inputs
    return [np.full_like(x, dy.reshape(-1)[0] / max(x.size, 1))]


def _sum_elements(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    total = inputs[0].mean() if settings.integer("average") else inputs[0].sum()
    return [np.asarray(total, inputs[0].dtype)]


def _sum_elements_gradient(inputs: Sequence[Array], _settings: Arguments, _n: int) -> list[Array]:
    x, dy = inputs
    return [np.full_like(x, dy.reshape(-1)[0])]


def _softmax_with_loss(inputs: Sequence[Array], _settings: Arguments, n: int) -> list[Array]:
    x, label = inputs
    y = _softmax_of(x)
    loss = -np.log(np.maximum(y[_picked(x, label)], np.asarray(_SMALLEST, x.dtype))).mean()
    return [y, np.asarray(loss, x.dtype)][:n]


def _softmax_with_loss_gradient(inputs: Sequence[Array], _settings: Arguments, _n: int) -> list[Array]:
    x, label, y, dloss = inputs
    result = y.copy()
    result[_picked(x, label)] -= 1
    return [result * (dloss.reshape(-1)[0] / len(x))]


DENSE: dict[str, Kernel] = {
    "FC": _fc,
    "FCGradient": _fc_gradient,
    "MatMul": _matmul,
    "Softmax": _softmax,
    "SoftmaxGradient": _softmax_gradient,
    "LabelCrossEntropy": _cross_entropy,
    "LabelCrossEntropyGradient": _cross_entropy_gradient,
    "AveragedLoss": _averaged,
    "AveragedLossGradient": _averaged_gradient,
    "SumElements": _sum_elements,
    "SumElementsGradient": _sum_elements_gradient,
    "SoftmaxWithLoss": _softmax_with_loss,
    "SoftmaxWithLossGradient": _softmax_with_loss_gradient,
}
