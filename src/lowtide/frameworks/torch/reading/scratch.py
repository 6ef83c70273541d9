"""Scratch memory of kernels, as measured for the CPU kernels of PyTorch 2.13 on x86 and for an H100."""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals.distributed import backend_of
from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.nodes import map_nodes
from lowtide.frameworks.torch.internals.operators import op_name, overload_of
from lowtide.frameworks.torch.internals.tensors import bytes_of, contiguous_copy, is_channels_last
from lowtide.frameworks.torch.reading.effects import Arguments, arguments_by_name, is_repeatable_collective
from lowtide.frameworks.torch.reading.outlined import outlined_by
from lowtide.frameworks.torch.reading.scratch_convolution import convolution, convolution_backward
from lowtide.frameworks.torch.reading.scratch_products import (
    attention,
    attention_backward,
    matrix_product,
    product_with_bias_on_cuda,
)
from lowtide.frameworks.torch.reading.scratch_reductions import RULES_OF_REDUCTIONS, single_precision_bytes

_SELECTORS = ("condition", "mask")
"""Arguments that select elements, and are not cast."""


def scratch_bytes(node: Node, given_value: Callable[[Node], Any] = hinted_value_of) -> int:
    """Return the bytes that a node's kernel allocates besides its outputs and frees before it returns.

    `given_value` returns the value of an argument as the kernel receives it.

    Modeled on the CPU: copies of operands that BLAS cannot read, casts of mixed dtypes, layouts of convolutions,
    copies of strided gradients in fused optimizers, temporaries of normalization, losses, attention, sorting and
    resampling, and collectives over gloo. Scalars are left out. Modeled on a GPU: only the workspaces of products with
    a bias, not those that cuDNN chooses for convolutions.
    """
    outlined = outlined_by(node)
    if outlined is not None:
        return outlined.scratch_bytes
    target = overload_of(node.target)
    if target is None or not (target.namespace == "aten" or is_repeatable_collective(node)):
        return 0
    given: Arguments = {name: map_nodes(value, given_value) for name, value in arguments_by_name(node).items()}
    devices = {value.device.type for value in given.values() if isinstance(value, torch.Tensor)}
    if devices - {"cpu"}:
        return product_with_bias_on_cuda(given) if devices == {"cuda"} and op_name(target) == "addmm" else 0
    rule = _RULES.get(op_name(target))
    if rule is not None:
        return rule(given, hinted_value_of(node))
    return _casts(given) if torch.Tag.pointwise in target.tags else 0


def has_unknown_workspace(node: Node) -> bool:
    """Return whether a node's kernel is known to need a workspace of unmodeled size."""
    name = op_name(node.target)
    return name.startswith(("linalg_", "_linalg_", "_fft_", "mkldnn_rnn_layer")) or name in ("_unique2", "multinomial")


def _casts(given: Arguments) -> int:
    """Return the bytes of operands cast to the common dtype of an element-wise kernel."""
    operands = [
        value
        for name, value in given.items()
        if isinstance(value, torch.Tensor) and value.dim() > 0 and name not in _SELECTORS
    ]
    if len({tensor.dtype for tensor in operands}) < 2:
        return 0
    common = reduce(torch.promote_types, (tensor.dtype for tensor in operands))
    return sum(tensor.numel() * common.itemsize for tensor in operands if tensor.dtype != common)


def _fused_update(given: Arguments, _: Any) -> int:
    """Return the bytes of gradients copied because their strides differ from their parameters'."""
    pairs = zip(given["self"], given["grads"], strict=True)
    return sum(bytes_of(gradient) for parameter, gradient in pairs if parameter.stride() != gradient.stride())


def _copies(*names: str) -> Callable[[Arguments, Any], int]:
    """Return the rule of kernels that copy the named operands unless they are contiguous."""
    return lambda given, _: sum(contiguous_copy(given[name]) for name in names if given.get(name) is not None)


def _image_copies(name: str) -> Callable[[Arguments, Any], int]:
    """Return the rule of kernels that copy images unless they are contiguous or channels-last."""
    return lambda given, _: 0 if is_channels_last(given[name]) else contiguous_copy(given[name])


def _size_of(name: str) -> Callable[[Arguments, Any], int]:
    """Return the rule of kernels that need as many bytes as the named operand has."""
    return lambda given, _: bytes_of(given[name])


def _gelu_backward(given: Arguments, _: Any) -> int:
    """Return the bytes of both operands if their strides differ, since oneDNN copies them; not in double precision."""
    gradient, source = given["grad_output"], given["self"]
    if source.dtype == torch.float64:
        return 0
    same_layout = gradient.stride() == source.stride() or (gradient.is_contiguous() and source.is_contiguous())
    return 0 if same_layout else bytes_of(gradient) + bytes_of(source)


def _layer_norm_backward(given: Arguments, result: Any) -> int:
    copies = contiguous_copy(given["grad_out"]) + contiguous_copy(given["input"])
    return copies + sum(bytes_of(gradient) for gradient in result[1:] if gradient is not None)


def _channel_sums(given: Arguments, _: Any) -> int:
    """Return the bytes of two numbers per channel and image."""
    source = given["input"]
    positions = max(1, math.prod(source.shape[3:]))
    return single_precision_bytes(source[:, :, 0] if source.dim() > 2 else source, 2) // positions


def _group_norm(given: Arguments, result: Any) -> int:
    return 0 if given["input"].is_contiguous() else _channel_sums(given, result)


def _batch_norm(_: Arguments, result: Any) -> int:
    """Return the bytes of three numbers per channel."""
    return single_precision_bytes(result[1], 3)


def _batch_norm_backward(given: Arguments, result: Any) -> int:
    """Add a temporary of the input's size for operands of one layout, whose kernel computes the gradient in steps."""
    gradient, source = given["grad_out"], given["input"]
    operands = (gradient, source)
    same_layout = all(map(torch.Tensor.is_contiguous, operands)) or all(map(is_channels_last, operands))
    channels = result[1] if result[1] is not None else source[0]
    return (bytes_of(source) if same_layout and given["output_mask"][0] else 0) + single_precision_bytes(channels, 3)


def _resampled(given: Arguments, result: Any) -> int:
    """Return the bytes of images copied to channels-last format and back."""
    image = given["self"] if "self" in given else given["input"]
    return 0 if is_channels_last(image) else bytes_of(image) + bytes_of(result)


def _resampling_weights(_: Arguments, result: torch.Tensor) -> int:
    """Return the bytes of up to four weights and indices per row and column."""
    return 4 * sum(result.shape[2:]) * (result.element_size() + torch.int64.itemsize)


def _gathered(given: Arguments, result: Any) -> int:
    """Return the bytes of the flat copy of the result into which gloo gathers."""
    return bytes_of(result) if _runs_on_gloo(given) else 0


def _scattered(given: Arguments, _: Any) -> int:
    """Return the bytes of the flat copy of the input that gloo reduces."""
    return bytes_of(given["input"]) if _runs_on_gloo(given) else 0


def _runs_on_gloo(given: Arguments) -> bool:
    return given["input"].device.type == "cpu" and "gloo" in (backend_of(given["group_name"]) or "")


_RULES: dict[str, Callable[[Arguments, Any], int]] = {
    **RULES_OF_REDUCTIONS,
    "all_gather_into_tensor": _gathered,
    "reduce_scatter_tensor": _scattered,
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), matrix_product),
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"), _fused_update),
    **dict.fromkeys(("upsample_nearest2d", "upsample_bilinear2d", "_upsample_nearest_exact2d"), _resampled),
    **dict.fromkeys(("upsample_bicubic2d", "upsample_trilinear3d", "upsample_nearest3d"), _resampling_weights),
    **dict.fromkeys(("upsample_nearest2d_backward", "upsample_bilinear2d_backward"), _image_copies("grad_output")),
    **dict.fromkeys(("upsample_nearest1d", "upsample_linear1d"), _resampling_weights),
    **dict.fromkeys(("_softmax", "_log_softmax"), _copies("self")),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _copies("grad_output", "output")),
    **dict.fromkeys(("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d"), _image_copies("self")),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit_functional"), _batch_norm),
    **dict.fromkeys(("_fused_rms_norm", "native_dropout"), _size_of("input")),
    "max_pool2d_with_indices_backward": _image_copies("grad_output"),
    "embedding": _copies("indices"),
    "embedding_dense_backward": _copies("grad_output", "indices"),
    "gelu_backward": _gelu_backward,
    "native_layer_norm": _copies("input"),
    "native_layer_norm_backward": _layer_norm_backward,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _channel_sums,
    "native_batch_norm_backward": _batch_norm_backward,
    "convolution": convolution,
    "convolution_backward": convolution_backward,
    "im2col": _size_of("self"),
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
    "native_dropout_backward": _size_of("grad_output"),
}
