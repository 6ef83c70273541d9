"""Kernels of convolution and pooling in NCHW."""

from collections.abc import Iterator, Sequence

import numpy as np

from lowtide.frameworks.caffe2.nets.arguments import Arguments
from lowtide.frameworks.caffe2.running.kernels import Kernel
from lowtide.frameworks.caffe2.running.workspace import Array
from lowtide.frameworks.caffe2.shapes.rules import Window, window_of


def _window(x: Array, settings: Arguments) -> tuple[Window, tuple[int, int]]:
    window = window_of(settings, x.shape[2], x.shape[3])
    size = window.output(x.shape[2], x.shape[3])
    if settings.text("order", "NCHW") != "NCHW" or window.rounds_up or size is None:
        raise NotImplementedError
    return window, size


def _padded(x: Array, window: Window, fill: float = 0.0) -> Array:
    top, left, bottom, right = window.pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)


def _offsets(window: Window, size: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    for row in range(window.kernel[0]):
        for column in range(window.kernel[1]):
            starts = row * window.dilation[0], column * window.dilation[1]
            rows, columns = (
                slice(start, start + stride * (count - 1) + 1, stride)
                for start, stride, count in zip(starts, window.stride, size, strict=True)
            )
            yield rows, columns


def _columns(x: Array, window: Window, size: tuple[int, int], fill: float = 0.0) -> Array:
    """Return windows of shape (images, channels, positions in the window, outputs)."""
    padded = _padded(x, window, fill)
    places = [padded[:, :, rows, columns] for rows, columns in _offsets(window, size)]
    return np.stack(places, 2).reshape(*x.shape[:2], len(places), -1)


def _uncolumns(columns: Array, shape: tuple[int, ...], window: Window, size: tuple[int, int]) -> Array:
    padded = _padded(np.zeros(shape, columns.dtype), window)
    for place, (rows, across) in enumerate(_offsets(window, size)):
        padded[:, :, rows, across] += columns[:, :, place].reshape(*shape[:2], *size)
    top, left, _, _ = window.pads
    return np.ascontiguousarray(padded[:, :, top : top + shape[2], left : left + shape[3]])


def _grouped(x: Array, w: Array, settings: Arguments) -> tuple[Array, Array, Window, tuple[int, int], int]:
    """Return windows (images, group, inputs, outputs) and filters (group, filters, inputs)."""
    window, size = _window(x, settings)
    groups = settings.integer("group", 1)
    columns = _columns(x, window, size).reshape(len(x), groups, -1, size[0] * size[1])
    return columns, w.reshape(groups, w.shape[0] // groups, -1), window, size, groups


def _conv(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    x, w, *bias = inputs
    columns, filters, _, size, _ = _grouped(x, w, settings)
    result = (filters @ columns).reshape(len(x), w.shape[0], *size)
    return [result + bias[0].reshape(1, -1, 1, 1) if bias else result]


def _conv_gradient(inputs: Sequence[Array], settings: Arguments, n: int) -> list[Array]:
    x, w, dy = inputs
    columns, filters, window, size, groups = _grouped(x, w, settings)
    rows = dy.reshape(len(x), groups, w.shape[0] // groups, -1)
    dw = (rows @ columns.transpose(0, 1, 3, 2)).sum(0).reshape(w.shape)
    back = (filters.transpose(0, 2, 1) @ rows).reshape(*x.shape[:2], -1, size[0] * size[1])
    dx = _uncolumns(back, x.shape, window, size)
    return [dw, dx][:n] if settings.integer("no_bias") else [dw, dy.sum((0, 2, 3)), dx][:n]


def _max_pool(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    (x,) = inputs
    window, size = _window(x, settings)
    return [_columns(x, window, size, -np.inf).max(2).reshape(*x.shape[:2], *size)]


def _max_pool_gradient(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    x, _, dy = inputs
    window, size = _window(x, settings)
    columns = _columns(x, window, size, -np.inf)
    places = list(range(columns.shape[2]))
    chosen: Array = np.equal(columns.argmax(2)[..., None], places).swapaxes(2, 3)
    return [_uncolumns(chosen * dy.reshape(*dy.shape[:2], 1, -1), x.shape, window, size).astype(x.dtype)]


def _average_pool(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    (x,) = inputs
    window, size = _window(x, settings)
    inside = _columns(np.ones_like(x[:1, :1]), window, size).sum(2)
    return [(_columns(x, window, size).sum(2) / inside).reshape(*x.shape[:2], *size)]


def _average_pool_gradient(inputs: Sequence[Array], settings: Arguments, _n: int) -> list[Array]:
    x, _, dy = inputs
    window, size = _window(x, settings)
    inside = _columns(np.ones_like(x[:1, :1]), window, size).sum(2, keepdims=True)
    places = window.kernel[0] * window.kernel[1]
    shares = np.repeat(dy.reshape(*dy.shape[:2], 1, -1) / inside, places, 2)
    return [_uncolumns(shares, x.shape, window, size)]


WINDOWED: dict[str, Kernel] = {
    "Conv": _conv,
    "ConvGradient": _conv_gradient,
    "MaxPool": _max_pool,
    "MaxPoolGradient": _max_pool_gradient,
    "AveragePool": _average_pool,
    "AveragePoolGradient": _average_pool_gradient,
}
