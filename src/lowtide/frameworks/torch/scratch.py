"""Memory that CPU kernels take for themselves while they run, as measured for the kernels of PyTorch 2.13 on x86."""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.effects import arguments_by_name
from lowtide.frameworks.torch.torch_internals import map_nodes, op_name, overload_of, value_of

_ONEDNN_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_CHANNEL_BLOCK = 16
"""oneDNN keeps images in blocks of so many channels."""

Arguments = dict[str, Any]


def scratch_bytes(node: Node) -> int:
    """Return the bytes a node's kernel allocates besides its outputs and frees before it returns.

    Modeled on the CPU: copies of operands whose strides BLAS cannot take, casts of mixed types, blocked layouts of
    convolutions, copies of strided gradients in fused optimizers, temporaries of normalization and resampling.
    Buffers per thread are left out: they are small and would make plans depend on the machine.
    """
    target = overload_of(node.target)
    if target is None or target.namespace != "aten":
        return 0
    given: Arguments = {name: map_nodes(value, value_of) for name, value in arguments_by_name(node).items()}
    if any(tensor.device.type != "cpu" for tensor in _tensors(given)):
        return 0
    rule = _RULES.get(op_name(target))
    if rule is not None:
        return rule(given, value_of(node))
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
    operands = [tensor for tensor in _tensors(given) if tensor.dim() > 0 and tensor.dtype != torch.bool]
    if len({tensor.dtype for tensor in operands}) < 2:
        return 0
    common = reduce(torch.promote_types, (tensor.dtype for tensor in operands))
    return sum(tensor.numel() * common.itemsize for tensor in operands if tensor.dtype != common)


def _matrix_copies(given: Arguments, _: Any) -> int:
    """BLAS takes a matrix whose rows or columns are contiguous; any other is copied, a batch one by one."""
    copied = 0
    for name in ("self", "mat1", "mat2", "batch1", "batch2"):
        matrix = given.get(name)
        if isinstance(matrix, torch.Tensor) and matrix.dim() >= 2 and 1 not in matrix.stride()[-2:]:
            copied += _bytes_of(matrix) // (matrix.shape[0] if matrix.dim() == 3 else 1)
    return copied


def _blocked(image: torch.Tensor) -> int:
    """Bytes of an image in oneDNN's blocked layout; images of few channels are taken as they are."""
    channels = image.shape[1]
    if channels < 4:
        return 0
    return _bytes_of(image) // channels * math.ceil(channels / _CHANNEL_BLOCK) * _CHANNEL_BLOCK


def _is_blocked(image: torch.Tensor) -> bool:
    return image.dtype in _ONEDNN_TYPES and image.is_contiguous()


def _convolution(given: Arguments, result: Any) -> int:
    image, weight = given["input"], given["weight"]
    if image.dtype not in _ONEDNN_TYPES:  # the image is unfolded, once per position of the kernel
        positions = math.prod(result.shape[2:]) * math.prod(weight.shape[1:])
        return image.shape[0] * positions * image.element_size()
    if not _is_blocked(image):
        return _bytes_of(weight)
    return max(_blocked(result), _blocked(image) + _bytes_of(weight))


def _convolution_backward(given: Arguments, _: Any) -> int:
    gradient, image, weight = given["grad_output"], given["input"], given["weight"]
    if not _is_blocked(image):
        return 2 * _bytes_of(weight)
    return _blocked(gradient) + _blocked(image) + _bytes_of(weight)


def _fused_update(given: Arguments, _: Any) -> int:
    """A gradient with other strides than its parameter is copied."""
    pairs = zip(given["self"], given["grads"], strict=True)
    return sum(_bytes_of(gradient) for parameter, gradient in pairs if parameter.stride() != gradient.stride())


def _one_input(given: Arguments, _: Any) -> int:
    return _bytes_of(given["input"])


def _mask(given: Arguments, _: Any) -> int:
    return given["self"].numel()


def _resampled(given: Arguments, result: Any) -> int:
    return _bytes_of(given["self"]) + _bytes_of(result)


_RULES: dict[str, Callable[[Arguments, Any], int]] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), _matrix_copies),
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"), _fused_update),
    **dict.fromkeys(("upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d"), _resampled),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "native_batch_norm_backward": _one_input,
    "native_dropout": _one_input,
    "_safe_softmax": _mask,
}
