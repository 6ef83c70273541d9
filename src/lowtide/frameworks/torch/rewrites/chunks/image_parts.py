"""What ops on a batch of images, or of signals, do to each of them alone."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch.fx import Node

from lowtide.frameworks.torch.rewrites.chunks.roles import PartCall, RowPart
from lowtide.frameworks.torch.rewrites.chunks.row_losses import NONE

Rule = Callable[[PartCall], RowPart | None]


OF_WEIGHTS = frozenset((1, 2))
"""Which results of a backward op are gradients of weight and bias: sums over images, or rows."""


def _each(*images: str, sizes: str | None = None, added: frozenset[int] = frozenset()) -> Rule:
    """Return the rule of ops that treat every image alone; some operands are images, or numbers of each.

    Some results may be `added` up over images.
    """

    def rule(call: PartCall) -> RowPart | None:
        operands = [call.given[name] for name in images if isinstance(call.given.get(name), Node)]
        is_batch = all(
            call.rows.leading(shape) == 1 and call.rows.share(shape) == 1 for shape in map(call.shape, operands)
        )
        part = call.part(*images, sizes=sizes) if is_batch else None
        return part and replace(part, added=added & _wanted(call.given))

    return rule


def _wanted(given: Mapping[str, Any]) -> frozenset[int]:
    """Return the places of the results that a call is to compute."""
    return frozenset(place for place, is_wanted in enumerate(given.get("output_mask", ())) if is_wanted)


def _where(says: Callable[[Mapping[str, Any]], bool], rule: Rule) -> Rule:
    """Return a rule for those calls of an op of which its arguments say that it holds."""
    return lambda call: rule(call) if says(call.given) else None


def _gives_batch(rule: Rule) -> Rule:
    """Return a rule for those calls of an op whose result has a row for each image."""
    return lambda call: rule(call) if call.result[:1] == (call.rows.count,) else None


def _reads_statistics(given: Mapping[str, Any]) -> bool:
    """Tell whether a batch is normalized by statistics that are known before."""
    return not given.get("training", False)


def _is_reduced_later(given: Mapping[str, Any]) -> bool:
    """Tell whether a loss is asked for pixel by pixel."""
    return given["reduction"] == NONE


def _is_within_images(given: Mapping[str, Any]) -> bool:
    """Tell whether places are taken of every image, the same of each; apart from one another, they would lead."""
    taken = [dim for dim, index in enumerate(given["indices"]) if index is not None]
    return bool(taken) and taken == list(range(max(1, taken[0]), taken[-1] + 1))


def _has_no_mask(given: Mapping[str, Any]) -> bool:
    return given.get("attn_mask") is None


def _split(call: PartCall) -> RowPart | None:
    return call.part("self") if call.keeps("self", [call.given.get("dim", 0)]) else None


_DIMENSIONS = ("1d", "2d", "3d")
_POOLED = ("avg_pool", "_adaptive_avg_pool", "adaptive_max_pool", "reflection_pad", "replication_pad")
_UPSAMPLED = ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")

IMAGE_RULES: Mapping[str, Rule] = {
    "convolution": _each("input"),
    "convolution_backward": _each("grad_output", "input", added=OF_WEIGHTS),
    "nll_loss2d_forward": _where(_is_reduced_later, _each("self", "target")),
    "native_group_norm": _each("input", sizes="N"),
    "native_group_norm_backward": _each("grad_out", "input", "mean", "rstd", sizes="N", added=OF_WEIGHTS),
    "native_batch_norm": _where(_reads_statistics, _each("input")),
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
"""By the name of the op."""

NETWORK_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("split", "split_with_sizes"), _split),
    "view": _gives_batch(_each("self", sizes="size")),
    **dict.fromkeys(("index", "_unsafe_index"), _where(_is_within_images, _each("self"))),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _where(_is_within_images, _each("self", "values"))),
    "native_layer_norm_backward": _each("grad_out", "input", "mean", "rstd", added=OF_WEIGHTS),
    "_scaled_dot_product_flash_attention_for_cpu": _where(_has_no_mask, _each("query", "key", "value")),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _where(
        _has_no_mask, _each("grad_out", "query", "key", "value", "out", "logsumexp")
    ),
}
"""The same for ops between convolutions that would lead from a product of rows through a whole network."""
