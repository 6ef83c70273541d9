"""Memory that kernels take for themselves while they run, as measured for the CPU kernels of PyTorch 2.13 on x86."""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.nodes import map_nodes
from lowtide.frameworks.torch.internals.operators import op_name, overload_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name, is_repeatable_collective
from lowtide.frameworks.torch.reading.outlined import outlined_by
from lowtide.frameworks.torch.reading.scratch_attention import attention, attention_backward
from lowtide.frameworks.torch.reading.scratch_collectives import gathered, scattered
from lowtide.frameworks.torch.reading.scratch_convolution import convolution, convolution_backward
from lowtide.frameworks.torch.reading.scratch_cuda import cuda_scratch_bytes
from lowtide.frameworks.torch.reading.scratch_loss import (
    cross_entropy,
    cross_entropy_of_probabilities,
    loss,
    loss_of_logits,
)
from lowtide.frameworks.torch.reading.scratch_products import HALF_TYPES, matrix_product
from lowtide.frameworks.torch.reading.tensor_forms import bytes_of, contiguous_copy, is_channels_last

_SELECTORS = ("condition", "mask")
"""Arguments that say which element is taken, and are not cast."""

Arguments = dict[str, Any]


def scratch_bytes(node: Node, given_value: Callable[[Node], Any] = hinted_value_of) -> int:
    """Return the bytes a node's kernel allocates besides its outputs and frees before it returns.

    `given_value` tells what the kernel is given for a node, where that is not what the node stands for.

    Modeled on the CPU: copies of operands whose strides BLAS cannot take, casts of mixed types, layouts of
    convolutions, copies of strided gradients in fused optimizers, temporaries of normalization, losses, attention,
    sorting, resampling, collectives over gloo. Where every thread has a buffer, one thread's counts, so that plans do
    not depend on the number of threads. Scalars are left out. On a GPU, only the workspaces of products with a bias are
    modeled; those that cuDNN chooses for convolutions are not.
    """
    outlined = outlined_by(node)
    if outlined is not None:
        return outlined.scratch_bytes
    target = overload_of(node.target)
    if target is None or not (target.namespace == "aten" or is_repeatable_collective(node)):
        return 0
    given: Arguments = {name: map_nodes(value, given_value) for name, value in arguments_by_name(node).items()}
    devices = {tensor.device.type for tensor in _tensors(given)}
    if devices - {"cpu"}:
        return cuda_scratch_bytes(op_name(target), given) if devices == {"cuda"} else 0
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


def _fused_update(given: Arguments, _: Any) -> int:
    """A gradient with other strides than its parameter is copied."""
    pairs = zip(given["self"], given["grads"], strict=True)
    return sum(bytes_of(gradient) for parameter, gradient in pairs if parameter.stride() != gradient.stride())


def _copies(*names: str) -> Callable[[Arguments, Any], int]:
    """Return the rule of kernels that copy the operands of these names unless they are contiguous."""
    return lambda given, _: sum(contiguous_copy(given[name]) for name in names if given.get(name) is not None)


def _image_copies(name: str) -> Callable[[Arguments, Any], int]:
    """Return the rule of kernels that copy images unless they are contiguous or their channels stand together."""
    return lambda given, _: 0 if is_channels_last(given[name]) else contiguous_copy(given[name])


def _gelu_backward(given: Arguments, _: Any) -> int:
    """oneDNN copies both operands if their strides differ; it has no kernel of double precision."""
    gradient, source = given["grad_output"], given["self"]
    if source.dtype == torch.float64:
        return 0
    alike = gradient.stride() == source.stride() or (gradient.is_contiguous() and source.is_contiguous())
    return 0 if alike else bytes_of(gradient) + bytes_of(source)


def _single(tensor: torch.Tensor, count: int = 1) -> int:
    """Bytes of some rows of as many numbers as a tensor has, in single precision at least."""
    return count * tensor.numel() * max(tensor.element_size(), torch.float32.itemsize)


def _layer_norm_backward(given: Arguments, result: Any) -> int:
    copies = contiguous_copy(given["grad_out"]) + contiguous_copy(given["input"])
    return copies + sum(bytes_of(gradient) for gradient in result[1:] if gradient is not None)


def _channel_sums(given: Arguments, _: Any) -> int:
    """Two numbers for every channel of every image."""
    return _single(given["input"][:, :, 0] if given["input"].dim() > 2 else given["input"], 2) // _positions(given)


def _positions(given: Arguments) -> int:
    return max(1, math.prod(given["input"].shape[3:]))


def _group_norm(given: Arguments, result: Any) -> int:
    return 0 if given["input"].is_contiguous() else _channel_sums(given, result)


def _batch_norm(given: Arguments, result: Any) -> int:
    """Three rows of channels."""
    return _single(result[1], 3)


def _batch_norm_backward(given: Arguments, result: Any) -> int:
    """Operands of one form have a kernel that makes the gradient in steps."""
    gradient, source = given["grad_out"], given["input"]
    alike = all(map(torch.Tensor.is_contiguous, (gradient, source))) or all(map(is_channels_last, (gradient, source)))
    return (bytes_of(source) if alike and given["output_mask"][0] else 0) + _single(
        result[1] if result[1] is not None else source[0], 3
    )


def _one_input(given: Arguments, _: Any) -> int:
    return bytes_of(given["input"])


def _image_copied(given: Arguments, _: Any) -> int:
    return bytes_of(given["self"])


def _safe_softmax(given: Arguments, _: Any) -> int:
    """A mask of what is left out, and of rows of which nothing is left."""
    source = given["self"]
    rows = source.numel() // max(1, source.shape[given["dim"]]) if source.dim() else 1
    return source.numel() + rows


def _mask_as_numbers(given: Arguments, _: Any) -> int:
    """The mask is converted to the gradient's type."""
    return bytes_of(given["grad_output"])


def _mean(given: Arguments, result: torch.Tensor) -> int:
    """Half-precision numbers are summed in single precision."""
    return _single(given["self"]) + _single(result) if given["self"].dtype in HALF_TYPES else 0


def _sum(given: Arguments, result: torch.Tensor) -> int:
    """Numbers of another type than the sum's are converted; over several dimensions half-precision ones too."""
    source = given["self"]
    if source.dtype != result.dtype:
        return source.numel() * result.element_size()
    several = isinstance(given.get("dim"), list | tuple) and len(given["dim"]) > 1
    return _mean(given, result) if several else 0


def _sort(given: Arguments, _: Any) -> int:
    """One row of places."""
    source = given["self"]
    return source.shape[given.get("dim", -1)] * torch.int64.itemsize if source.dim() else 0


def _argsort(given: Arguments, result: torch.Tensor) -> int:
    return bytes_of(given["self"]) + _sort(given, result)


def _kth_value(given: Arguments, _: Any) -> int:
    return bytes_of(given["self"]) + given["self"].numel() * torch.int64.itemsize


def _exponentials(given: Arguments, result: torch.Tensor) -> int:
    return bytes_of(given["self"]) + bytes_of(result)


def _result_as_single(_: Arguments, result: torch.Tensor) -> int:
    """Half-precision results are put together in single precision."""
    return _single(result) if result.dtype in HALF_TYPES else 0


def _resampled(given: Arguments, result: Any) -> int:
    """Images are brought into a form whose channels stand together, and back."""
    image = given["self"] if "self" in given else given["input"]
    return 0 if is_channels_last(image) else bytes_of(image) + bytes_of(result)


def _resampling_weights(given: Arguments, result: torch.Tensor) -> int:
    """Up to four weights and places for every row and column."""
    return 4 * sum(result.shape[2:]) * (result.element_size() + torch.int64.itemsize)


_RULES: dict[str, Callable[[Arguments, Any], int]] = {
    "all_gather_into_tensor": gathered,
    "reduce_scatter_tensor": scattered,
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
    **dict.fromkeys(("sum", "cumsum", "cumprod", "prod"), _sum),
    **dict.fromkeys(("scatter", "scatter_add", "gather", "index_add"), _result_as_single),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss"), loss),
    "binary_cross_entropy": cross_entropy_of_probabilities,
    "binary_cross_entropy_with_logits": loss_of_logits,
    "nll_loss_forward": cross_entropy,
    "max_pool2d_with_indices_backward": _image_copies("grad_output"),
    "embedding": _copies("indices"),
    "embedding_dense_backward": _copies("grad_output", "indices"),
    "gelu_backward": _gelu_backward,
    "native_layer_norm": _copies("input"),
    "native_layer_norm_backward": _layer_norm_backward,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _channel_sums,
    "native_batch_norm_backward": _batch_norm_backward,
    "_fused_rms_norm": _one_input,
    "convolution": convolution,
    "convolution_backward": convolution_backward,
    "im2col": _image_copied,
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
    "native_dropout": _one_input,
    "native_dropout_backward": _mask_as_numbers,
    "_safe_softmax": _safe_softmax,
    "mean": _mean,
    "sort": _sort,
    "argsort": _argsort,
    "kthvalue": _kth_value,
    "logsumexp": _exponentials,
}
