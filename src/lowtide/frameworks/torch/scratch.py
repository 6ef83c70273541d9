"""Memory that CPU kernels take for themselves while they run, as measured for the kernels of PyTorch 2.13 on x86."""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.effects import arguments_by_name
from lowtide.frameworks.torch.hints import hinted_value_of
from lowtide.frameworks.torch.torch_internals import is_dense, map_nodes, op_name, overload_of

_HALF_TYPES = (torch.bfloat16, torch.float16)
_ONEDNN_TYPES = (torch.float32, *_HALF_TYPES)
_CHANNEL_BLOCK = 16
"""oneDNN keeps images in blocks of so many channels."""
_FEWEST_BLOCKED_CHANNELS = 4

_SELECTORS = ("condition", "mask")
"""Arguments that say which element is taken, and are not cast."""

Arguments = dict[str, Any]


def scratch_bytes(node: Node, given_value: Callable[[Node], Any] = hinted_value_of) -> int:
    """Return the bytes a node's kernel allocates besides its outputs and frees before it returns.

    `given_value` tells what the kernel is given for a node, where that is not what the node stands for.

    Modeled on the CPU: copies of operands whose strides BLAS cannot take, casts of mixed types, blocked layouts of
    convolutions, copies of strided gradients in fused optimizers, temporaries of normalization and resampling.
    Buffers per thread are left out: they are small and would make plans depend on the machine.
    """
    target = overload_of(node.target)
    if target is None or target.namespace != "aten":
        return 0
    given: Arguments = {name: map_nodes(value, given_value) for name, value in arguments_by_name(node).items()}
    if any(tensor.device.type != "cpu" for tensor in _tensors(given)):
        return 0
    rule = _RULES.get(op_name(target))
    if rule is not None:
        return rule(given, hinted_value_of(node))
    return _casts(given) if torch.Tag.pointwise in target.tags else 0


def has_unknown_workspace(node: Node) -> bool:
    """Tell whether a node's kernel is known to need a workspace whose size is not modeled."""
    name = op_name(node.target)
    return name.startswith(("linalg_", "_linalg_", "_fft_", "mkldnn_rnn_layer")) or name in ("_unique2", "multinomial")


def _tensors(given: Arguments) -> list[torch.Tensor]:
    return [value for value in given.values() if isinstance(value, torch.Tensor)]


def _bytes_of(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel() * tensor.element_size()


def _casts(given: Arguments) -> int:
    """Element-wise kernels cast operands of other types to the common one beforehand."""
    operands = [
        value
        for name, value in given.items()
        if isinstance(value, torch.Tensor) and value.dim() > 0 and name not in _SELECTORS
    ]
    if len({tensor.dtype for tensor in operands}) < 2:
        return 0
    common = reduce(torch.promote_types, (tensor.dtype for tensor in operands))
    return sum(tensor.numel() * common.itemsize for tensor in operands if tensor.dtype != common)


def _matrix_copies(given: Arguments, _: Any) -> int:
    """BLAS takes a matrix whose rows or columns are contiguous; any other is copied, a batch one by one.

    oneDNN, which multiplies half-precision batches, takes no repeated matrices either and copies the whole batch.
    """
    copied = 0
    for name in ("self", "mat1", "mat2", "batch1", "batch2"):
        matrix = given.get(name)
        if not isinstance(matrix, torch.Tensor) or matrix.dim() < 2:
            continue
        if matrix.dim() == 3 and matrix.dtype in _HALF_TYPES and not is_dense(matrix):
            copied += _bytes_of(matrix)
        elif 1 not in matrix.stride()[-2:]:
            copied += _bytes_of(matrix) // (matrix.shape[0] if matrix.dim() == 3 else 1)
    return copied


def _blocked(image: torch.Tensor) -> int:
    """Bytes of an image in oneDNN's blocked layout."""
    channels = image.shape[1]
    return _bytes_of(image) // channels * math.ceil(channels / _CHANNEL_BLOCK) * _CHANNEL_BLOCK


def _input_block(image: torch.Tensor) -> int:
    """Bytes of the blocked copy of an image that goes in; one of few channels is taken as it is."""
    return _blocked(image) if image.shape[1] >= _FEWEST_BLOCKED_CHANNELS else 0


def _is_blocked(image: torch.Tensor) -> bool:
    return image.dtype in _ONEDNN_TYPES and image.is_contiguous()


def _convolution(given: Arguments, result: Any) -> int:
    image, weight = given["input"], given["weight"]
    if image.dtype not in _ONEDNN_TYPES:  # the image is unfolded, once per position of the kernel
        positions = math.prod(result.shape[2:]) * math.prod(weight.shape[1:])
        return image.shape[0] * positions * image.element_size()
    if given["transposed"]:
        return 2 * _bytes_of(result)
    if not _is_blocked(image):
        return _bytes_of(weight)
    # the result is blocked first and written out when the blocked inputs are gone
    computing = _input_block(image) + _bytes_of(weight) + _blocked(result)
    return max(computing - _bytes_of(result), _blocked(result))


def _convolution_backward(given: Arguments, result: Any) -> int:
    gradient, image, weight = given["grad_output"], given["input"], given["weight"]
    if not _is_blocked(image):
        return 2 * _bytes_of(weight)
    # the weight's gradient is blocked first, beside blocked inputs, and written out when those are gone
    blocked_inputs = _blocked(gradient) + _input_block(image)
    weight_gradient = _bytes_of(result[1])
    # where the kernel skips pixels, the image's gradient is blocked before that, beside the image
    skips = given["output_mask"][0] and given["groups"] == 1 and any(step > 1 for step in given["stride"])
    two_images = 2 * _bytes_of(image) - weight_gradient if skips else 0
    return max(blocked_inputs, weight_gradient, two_images) + _contiguous_copy(gradient)


def _fused_update(given: Arguments, _: Any) -> int:
    """A gradient with other strides than its parameter is copied."""
    pairs = zip(given["self"], given["grads"], strict=True)
    return sum(_bytes_of(gradient) for parameter, gradient in pairs if parameter.stride() != gradient.stride())


def _contiguous_copy(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_contiguous() else _bytes_of(tensor)


def _layer_norm(given: Arguments, _: Any) -> int:
    return sum(_contiguous_copy(given[name]) for name in ("grad_out", "input") if name in given)


def _one_input(given: Arguments, _: Any) -> int:
    return _bytes_of(given["input"])


def _mask(given: Arguments, _: Any) -> int:
    return given["self"].numel()


def _mask_as_numbers(given: Arguments, _: Any) -> int:
    """The mask is converted to the gradient's type."""
    return _bytes_of(given["grad_output"])


def _mean(given: Arguments, _: Any) -> int:
    """Half-precision numbers are summed in single precision."""
    return given["self"].numel() * torch.float32.itemsize if given["self"].dtype in _HALF_TYPES else 0


def _resampled(given: Arguments, result: Any) -> int:
    return _bytes_of(given["self"]) + _bytes_of(result)


def _resampled_backward(given: Arguments, _: Any) -> int:
    return _contiguous_copy(given["grad_output"])


_RULES: dict[str, Callable[[Arguments, Any], int]] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), _matrix_copies),
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"), _fused_update),
    **dict.fromkeys(("upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d"), _resampled),
    **dict.fromkeys(("upsample_nearest2d_backward", "upsample_bilinear2d_backward"), _resampled_backward),
    **dict.fromkeys(("native_layer_norm", "native_layer_norm_backward"), _layer_norm),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "native_batch_norm_backward": _one_input,
    "native_dropout": _one_input,
    "native_dropout_backward": _mask_as_numbers,
    "_safe_softmax": _mask,
    "mean": _mean,
}
