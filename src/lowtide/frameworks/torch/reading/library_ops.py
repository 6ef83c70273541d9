"""Ops whose kernels allocate memory by rules of their own, which only a run shows."""

from functools import cache
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.operators import is_view, op_name, overload_of

_PREFIXES = ("linalg_", "_linalg_", "_fft_", "mkldnn_rnn_layer", "_unique", "unique_", "_histogramdd", "quantized_")
_ON_CPU = {
    *("cholesky_solve", "cholesky_inverse", "geqrf", "ormqr", "lu_unpack", "triangular_solve", "logdet", "det"),
    *("multinomial", "masked_select", "masked_scatter", "masked_scatter_backward", "histc", "bincount", "isin"),
    *("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "index_reduce", "index_select", "scatter_reduce"),
    *("median", "nanmedian", "mode", "dist", "_trilinear", "roll", "tril", "triu", "mvlgamma", "ldexp", "isinf", "mv"),
    *("renorm", "_chunk_cat", "channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "soft_margin_loss", "addr"),
    "exp2",
    *("soft_margin_loss_backward", "multi_margin_loss", "multilabel_margin_loss_forward", "_ctc_loss"),
    *("_ctc_loss_backward", "_upsample_nearest_exact1d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
    *("_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward", "upsample_bicubic2d_backward"),
    *("upsample_trilinear3d_backward", "upsample_nearest1d_backward", "upsample_linear1d_backward"),
    *("upsample_nearest3d_backward", "_upsample_nearest_exact1d_backward", "_upsample_nearest_exact2d_backward"),
    *("_upsample_nearest_exact3d_backward", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"),
    *("avg_pool2d_backward", "avg_pool3d_backward", "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"),
    *("fractional_max_pool2d_backward", "fractional_max_pool3d_backward", "max_pool3d_with_indices_backward"),
    *("grid_sampler_2d_backward", "grid_sampler_3d_backward", "reflection_pad1d_backward"),
    *("reflection_pad2d_backward", "reflection_pad3d_backward", "replication_pad1d_backward"),
    *("replication_pad2d_backward", "replication_pad3d_backward", "_weight_norm_interface_backward"),
}
"""Ops that allocated more than their results in PyTorch's database of operators."""
_LIBRARIES = {
    *("_embedding_bag", "_embedding_bag_forward_only", "_embedding_bag_backward", "_embedding_bag_dense_backward"),
    *("_embedding_bag_per_sample_weights_backward", "_grouped_mm", "_scaled_grouped_mm", "_scaled_mm", "_scaled_mm_v2"),
    *("_int_mm", "_cslt_sparse_mm", "_sparse_semi_structured_mm", "_weight_int4pack_mm", "_weight_int8pack_mm"),
    *("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "topk", "segment_reduce", "_segment_reduce_backward"),
}
_ON_CUDA = {
    *("convolution", "convolution_backward", "cudnn_convolution", "cudnn_convolution_transpose", "_cudnn_rnn"),
    *("_cudnn_rnn_backward", "cudnn_batch_norm", "cudnn_batch_norm_backward", "miopen_rnn", "_cudnn_ctc_loss"),
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"),
    *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward"),
    *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward"),
    *("_flash_attention_forward", "_flash_attention_backward", "_efficient_attention_forward"),
    *("_efficient_attention_backward", "embedding_dense_backward", "index_put", "sort", "argsort", "cumsum", "cumprod"),
    *("kthvalue", "nonzero", "searchsorted", "randperm"),
}
_KNOWN_NAMESPACES = ("aten", "prims", "prim", "lowtide", "c10d", "_c10d_functional", "_dtensor", "profiler")
KEEPS_STATE = {"mkldnn_rnn_layer": 3, "_cudnn_rnn": 3}
"""Index of the result that a forward kernel keeps for the backward kernel."""
STATE = {"mkldnn_rnn_layer_backward": "workspace", "_cudnn_rnn_backward": "reserve"}
"""Argument that gets this state, whose size no fake tensor knows."""


def is_library_op(node: Node, device: str | None = None) -> bool:
    """Return whether a kernel on this type of device, or on any, allocates memory that no rule describes."""
    return _is_library_op(node.target, device) or has_complex_numbers(node)


def has_complex_numbers(node: Node) -> bool:
    """Return whether a kernel has complex values, for which PyTorch makes its own temporaries."""
    overload = overload_of(node.target)
    if overload is None or overload.namespace != "aten" or is_view(overload):
        return False
    return any(
        map(torch.is_complex, pytree.tensors_in([hinted_value_of(each) for each in (*node.all_input_nodes, node)]))
    )


@cache
def _is_library_op(target: Any, device: str | None) -> bool:
    name = op_name(target)
    if not name or target.namespace not in _KNOWN_NAMESPACES:
        return False
    own = _ON_CUDA if device == "cuda" else _ON_CPU if device == "cpu" else _ON_CPU | _ON_CUDA
    return name.startswith(_PREFIXES) or name in own or name in _LIBRARIES


def is_known_op(node: Node) -> bool:
    """Return whether PyTorch or lowtide defines an op; others may allocate anything."""
    overload = overload_of(node.target)
    return overload is None or overload.namespace in _KNOWN_NAMESPACES
