"""Scratch memory of kernels, as measured for PyTorch 2.13 on x86 and an H100."""

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
from lowtide.frameworks.torch.internals.runtime import without_modes
from lowtide.frameworks.torch.internals.tensors import bytes_of, contiguous_copy, is_channels_last
from lowtide.frameworks.torch.reading.effects import Arguments, arguments_by_name, is_repeatable_collective
from lowtide.frameworks.torch.reading.library_ops import has_complex_numbers, is_library_op
from lowtide.frameworks.torch.reading.outlined import outlined_by
from lowtide.frameworks.torch.reading.scratch_convolution import convolution, convolution_backward
from lowtide.frameworks.torch.reading.scratch_products import (
    attention,
    attention_backward,
    cuda_product,
    matrix_product,
)
from lowtide.frameworks.torch.reading.scratch_reductions import RULES_OF_REDUCTIONS, single_precision_bytes
from lowtide.frameworks.torch.reading.workspaces import workspace_of

_BATCH_NORMS = (
    *("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional"),
    *("_batch_norm_with_update", "_batch_norm_with_update_functional"),
)
_IMAGE = 4
"""Dimensions of a batch of images."""
_SELECTORS = ("condition", "mask")
"""Arguments that are not cast."""


def scratch_bytes(node: Node, given_value: Callable[[Node], Any] = hinted_value_of) -> int:
    """Return the bytes that a node's kernel allocates besides its outputs and frees before it returns.

    Modeled on the CPU: copies of operands that a kernel cannot read, casts of mixed dtypes, layouts of convolutions,
    temporaries of normalization, losses, attention, sorting and resampling, and collectives over gloo. Modeled on a
    GPU: workspaces of products with a bias. Other kernels of libraries are measured, see `workspace_of`. `given_value`
    returns an argument as the kernel receives it.
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
        if devices == {"cuda"} and op_name(target) == "addmm":
            return cuda_product(given)
        return _measured(node)
    if has_complex_numbers(node) and (found := workspace_of(node)) is not None:
        return found.scratch_bytes
    rule = _RULES.get(op_name(target))
    if rule is not None:
        with without_modes():  # a rule looks at parts of operands; stand-ins are not of the tracer's mode
            return rule(given, hinted_value_of(node))
    if is_library_op(node, "cpu"):
        return _measured(node)
    return _casts(given) if torch.Tag.pointwise in target.tags else 0


def _measured(node: Node) -> int:
    found = workspace_of(node)
    return 0 if found is None else found.scratch_bytes


def _casts(given: Arguments) -> int:
    """Return the bytes of operands cast to the common dtype."""
    operands = [value for name, value in given.items() if isinstance(value, torch.Tensor) and name not in _SELECTORS]
    if len({tensor.dtype for tensor in operands}) < 2:
        return 0
    arrays = [tensor for tensor in operands if tensor.dim() > 0]
    if len(operands) == 2:
        common = torch.result_type(*operands)
    else:
        common = reduce(torch.promote_types, (tensor.dtype for tensor in arrays or operands))
    return sum(tensor.numel() * common.itemsize for tensor in arrays if tensor.dtype != common)


def _fused_update(given: Arguments, _: Any) -> int:
    pairs = zip(given["self"], given["grads"], strict=True)
    return sum(bytes_of(gradient) for parameter, gradient in pairs if parameter.stride() != gradient.stride())


def _copies(*names: str) -> Callable[[Arguments, Any], int]:
    return lambda given, _: sum(contiguous_copy(given[name]) for name in names if given.get(name) is not None)


def _image_copies(name: str) -> Callable[[Arguments, Any], int]:
    return lambda given, _: 0 if is_channels_last(given[name]) else contiguous_copy(given[name])


def _size_of(name: str) -> Callable[[Arguments, Any], int]:
    return lambda given, _: bytes_of(given[name])


def _gelu_backward(given: Arguments, _: Any) -> int:
    """Count both operands, which oneDNN copies if the strides differ."""
    gradient, source = given["grad_output"], given["self"]
    if source.dtype == torch.float64:
        return 0
    same_layout = gradient.stride() == source.stride() or (gradient.is_contiguous() and source.is_contiguous())
    return 0 if same_layout else bytes_of(gradient) + bytes_of(source)


def _layer_norm_backward(given: Arguments, result: Any) -> int:
    copies = contiguous_copy(given["grad_out"]) + contiguous_copy(given["input"])
    return copies + sum(bytes_of(gradient) for gradient in result[1:] if gradient is not None)


def _channel_sums(given: Arguments, _: Any) -> int:
    """Count two numbers per image and channel."""
    source = given["input"]
    positions = max(1, math.prod(source.shape[3:]))
    return single_precision_bytes(source[:, :, 0] if source.dim() > 2 else source, 2) // positions


def _batch_norm_backward(given: Arguments, result: Any) -> int:
    """Count a second image gradient. Half-precision images of other strides are cast instead."""
    gradient, source = given["grad_out"], given["input"]
    operands = (gradient, source)
    per_channel = single_precision_bytes(result[1] if result[1] is not None else source[0], 3)
    if all(map(torch.Tensor.is_contiguous, operands)) or all(map(is_channels_last, operands)):
        return per_channel + (bytes_of(source) if given["output_mask"][0] else 0)
    is_cast = source.dtype == torch.float16 or (source.dtype == torch.bfloat16 and gradient.is_contiguous())
    return per_channel + (single_precision_bytes(source) if is_cast else 0)


def _resampled(given: Arguments, result: Any) -> int:
    image = given["self"] if "self" in given else given["input"]
    if is_channels_last(image):
        return 0
    return bytes_of(image) + (0 if is_channels_last(result) else bytes_of(result))


def _resampled_backward(given: Arguments, result: Any) -> int:
    copied = _image_copies("grad_output")(given, result)
    return copied + contiguous_copy(result) if copied else 0


def _max_pool_backward(given: Arguments, result: Any) -> int:
    gradient = given["grad_output"]
    copies = [each for each in (gradient, given["indices"], result) if not _is_ordered(each, like=gradient)]
    return sum(map(bytes_of, copies))


def _is_ordered(image: torch.Tensor, *, like: torch.Tensor) -> bool:
    if image.dim() != _IMAGE:
        return image.is_contiguous()
    last = like.stride(1) < like.stride(3) <= like.stride(2)
    return image.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _resampling_weights(_: Arguments, result: torch.Tensor) -> int:
    """Count up to four weights and indices per row and column."""
    return 4 * sum(result.shape[2:]) * (result.element_size() + torch.int64.itemsize)


def _distances(given: Arguments, _: Any) -> int:
    """Return the bytes of both operands with two more columns, for their norms and ones."""
    rows = (given["x1"], given["x2"])
    return sum(bytes_of(each) // each.shape[-1] * (each.shape[-1] + 2) for each in rows if each.shape[-1])


def _flat_copy(tensor: torch.Tensor, group: str) -> int:
    return bytes_of(tensor) if tensor.device.type == "cpu" and "gloo" in (backend_of(group) or "") else 0


_RULES: dict[str, Callable[[Arguments, Any], int]] = {
    **RULES_OF_REDUCTIONS,
    "all_gather_into_tensor": lambda given, result: _flat_copy(result, given["group_name"]),
    "reduce_scatter_tensor": lambda given, _: _flat_copy(given["input"], given["group_name"]),
    **{name: matrix_product(name) for name in ("mm", "addmm", "bmm", "baddbmm")},
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"), _fused_update),
    **dict.fromkeys(("upsample_nearest2d", "upsample_bilinear2d", "_upsample_nearest_exact2d"), _resampled),
    **dict.fromkeys(("upsample_bicubic2d", "upsample_trilinear3d", "upsample_nearest3d"), _resampling_weights),
    **dict.fromkeys(("upsample_nearest2d_backward", "upsample_bilinear2d_backward"), _resampled_backward),
    **dict.fromkeys(("upsample_nearest1d", "upsample_linear1d"), _resampling_weights),
    **dict.fromkeys(("_softmax", "_log_softmax"), _copies("self")),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _copies("grad_output", "output")),
    **dict.fromkeys(("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d"), _image_copies("self")),
    **dict.fromkeys(_BATCH_NORMS, lambda _, result: single_precision_bytes(result[1], 3)),
    **dict.fromkeys(("_fused_rms_norm", "native_dropout"), _size_of("input")),
    "max_pool2d_with_indices_backward": _max_pool_backward,
    "embedding": _copies("indices"),
    "embedding_dense_backward": _copies("grad_output", "indices"),
    "rrelu_with_noise": lambda given, _: contiguous_copy(given["self"]) if given.get("training") else 0,
    "gelu_backward": _gelu_backward,
    "native_layer_norm": _copies("input"),
    "native_layer_norm_backward": _layer_norm_backward,
    "native_group_norm": lambda given, result: 0 if given["input"].is_contiguous() else _channel_sums(given, result),
    "native_group_norm_backward": _channel_sums,
    **dict.fromkeys(("native_batch_norm_backward", "batch_norm_backward"), _batch_norm_backward),
    "convolution": convolution,
    "convolution_backward": convolution_backward,
    "im2col": lambda given, _: bytes_of(given["self"]) + contiguous_copy(given["self"]),
    "col2im": _copies("self"),
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
    "native_dropout_backward": _size_of("grad_output"),
    "_euclidean_dist": _distances,
}
