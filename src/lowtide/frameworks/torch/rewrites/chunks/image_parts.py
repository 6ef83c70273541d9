"""What ops on a batch of images, or of signals, do to each of them alone."""

from collections.abc import Callable, Mapping
from typing import Any

from torch.fx import Node

from lowtide.frameworks.torch.rewrites.chunks.roles import PartCall, RowPart

Rule = Callable[[PartCall], RowPart | None]


def _each(*images: str, sizes: str | None = None) -> Rule:
    """Return the rule of ops that treat every image alone; some operands are images, or numbers of each."""

    def rule(call: PartCall) -> RowPart | None:
        operands = [call.given[name] for name in images if isinstance(call.given.get(name), Node)]
        is_batch = all(
            call.rows.leading(shape) == 1 and call.rows.share(shape) == 1 for shape in map(call.shape, operands)
        )
        return call.part(*images, sizes=sizes) if is_batch else None

    return rule


def _where(says: Callable[[Mapping[str, Any]], bool], rule: Rule) -> Rule:
    """Return a rule for those calls of an op of which its arguments say that it holds."""
    return lambda call: rule(call) if says(call.given) else None


def _reads_statistics(given: Mapping[str, Any]) -> bool:
    """Tell whether a batch is normalized by statistics that are known before."""
    return not given.get("training", False)


def _is_of_images_alone(given: Mapping[str, Any]) -> bool:
    """Tell whether a backward op computes no gradient of weights, which sums over images in an order of its own."""
    _, *of_weights = given["output_mask"]
    return not any(of_weights)


_DIMENSIONS = ("1d", "2d", "3d")
_POOLED = ("avg_pool", "_adaptive_avg_pool", "adaptive_max_pool", "reflection_pad", "replication_pad")
_UPSAMPLED = ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")

IMAGE_RULES: Mapping[str, Rule] = {
    "convolution": _each("input"),
    "convolution_backward": _where(_is_of_images_alone, _each("grad_output", "input")),
    "native_group_norm": _each("input", sizes="N"),
    "native_batch_norm": _where(_reads_statistics, _each("input")),
    "_native_batch_norm_legit_no_training": _each("input"),
    "max_pool2d_with_indices": _each("self"),
    "max_pool3d_with_indices": _each("self"),
    "max_pool2d_with_indices_backward": _each("grad_output", "self", "indices"),
    "avg_pool2d_backward": _each("grad_output", "self"),
    **{f"{name}{dimensions}": _each("self") for name in _POOLED for dimensions in _DIMENSIONS},
    **{f"upsample_{kind}": _each("self", "input") for kind in _UPSAMPLED},
}
"""By the name of the op."""
