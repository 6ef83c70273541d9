"""Rules of ops that treat each image or signal of a batch independently."""

from collections.abc import Mapping
from dataclasses import replace

from torch.fx import Node

from lowtide.frameworks.torch.rewrites.chunks.losses import NONE
from lowtide.frameworks.torch.rewrites.chunks.rule import ChunkedOp, Rule, RuleCall, along, only_if

OF_WEIGHTS = frozenset((1, 2))
"""Results of a backward op that are gradients of weight and bias."""


def _each(*images: str, sizes: str | None = None, sums: frozenset[int] = frozenset()) -> Rule:
    def rule(call: RuleCall) -> ChunkedOp | None:
        operands = [call.given[name] for name in images if isinstance(call.given.get(name), Node)]
        is_batch = all(
            call.rows.leading_dims(shape) == 1 and call.rows.entries_per_row(shape) == 1
            for shape in map(call.shape, operands)
        )
        found = call.row_wise(*images, sizes=sizes) if is_batch else None
        requested = {place for place, wanted in enumerate(call.given.get("output_mask", ())) if wanted}
        return found and replace(found, partial_sums=sums & requested)

    return rule


def _reads_statistics(call: RuleCall) -> bool:
    return not call.given.get("training", False)


def _indexes_within_images(call: RuleCall) -> bool:
    """Return whether each image is indexed at the same positions, in adjacent dimensions.

    Otherwise the indices become the first dimension of the result.
    """
    taken = [dim for dim, index in enumerate(call.given["indices"]) if index is not None]
    return bool(taken) and taken == list(range(max(1, taken[0]), taken[-1] + 1))


def _has_no_mask(call: RuleCall) -> bool:
    return call.given.get("attn_mask") is None


_DIMENSIONS = ("1d", "2d", "3d")
_POOLED = ("avg_pool", "_adaptive_avg_pool", "adaptive_max_pool", "reflection_pad", "replication_pad")
_UPSAMPLED = ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")

IMAGE_RULES: Mapping[str, Rule] = {
    "convolution": _each("input"),
    "convolution_backward": _each("grad_output", "input", sums=OF_WEIGHTS),
    "nll_loss2d_forward": only_if(lambda call: call.given["reduction"] == NONE, _each("self", "target")),
    "native_group_norm": _each("input", sizes="N"),
    "native_group_norm_backward": _each("grad_out", "input", "mean", "rstd", sizes="N", sums=OF_WEIGHTS),
    "native_batch_norm": only_if(_reads_statistics, _each("input")),
    "_native_batch_norm_legit_no_training": _each("input"),
    "max_pool2d_with_indices": _each("self"),
    "max_pool3d_with_indices": _each("self"),
    "max_pool2d_with_indices_backward": _each("grad_output", "self", "indices"),
    "avg_pool2d_backward": _each("grad_output", "self"),
    "_adaptive_avg_pool2d_backward": _each("grad_output", "self"),
    **{f"{name}{dimensions}": _each("self") for name in _POOLED for dimensions in _DIMENSIONS},
    **{f"upsample_{kind}": _each("self", "input") for kind in _UPSAMPLED},
    **{f"upsample_{kind}_backward": _each("grad_output", sizes="input_size") for kind in _UPSAMPLED},
}

NETWORK_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("split", "split_with_sizes"), along("self")),
    "view": only_if(lambda call: call.result[:1] == (call.rows.count,), _each("self", sizes="size")),
    **dict.fromkeys(("index", "_unsafe_index"), only_if(_indexes_within_images, _each("self"))),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), only_if(_indexes_within_images, _each("self", "values"))),
    "native_layer_norm_backward": _each("grad_out", "input", "mean", "rstd", sums=OF_WEIGHTS),
    "_scaled_dot_product_flash_attention_for_cpu": only_if(_has_no_mask, _each("query", "key", "value")),
    "_scaled_dot_product_flash_attention_for_cpu_backward": only_if(
        _has_no_mask, _each("grad_out", "query", "key", "value", "out", "logsumexp")
    ),
}
"""Only for regions of images: rows of a product would extend through the whole network."""
