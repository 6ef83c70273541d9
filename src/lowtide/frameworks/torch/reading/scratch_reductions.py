"""Scratch memory of losses and reductions on the CPU."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.nodes import map_nodes
from lowtide.frameworks.torch.internals.operators import op_name, overload_of
from lowtide.frameworks.torch.internals.tensors import bytes_of
from lowtide.frameworks.torch.reading.effects import Arguments, arguments_by_name
from lowtide.frameworks.torch.reading.scratch_products import HALF_TYPES

_KEEPING = ("mse_loss", "smooth_l1_loss", "binary_cross_entropy")
"""Losses that return one number in the storage of all terms."""
_FOLD = "col2im"
"""An image in a storage of the size of all blocks."""
_NONE, _MEAN = 0, 1
"""PyTorch's kinds of reduction."""


def single_precision_bytes(tensor: torch.Tensor, count: int = 1) -> int:
    """Return the bytes of copies in at least single precision."""
    return count * tensor.numel() * max(tensor.element_size(), torch.float32.itemsize)


def kept_bytes(node: Node) -> int:
    """Return the storage bytes that a loss on the CPU, or an image of overlapping blocks, keeps; else 0."""
    target = overload_of(node.target)
    if target is None or target.namespace != "aten" or op_name(target) not in (*_KEEPING, _FOLD):
        return 0
    given: Arguments = {name: map_nodes(value, hinted_value_of) for name, value in arguments_by_name(node).items()}
    if op_name(target) == _FOLD:
        return bytes_of(given["self"])
    if given.get("reduction", _MEAN) == _NONE or given["self"].device.type != "cpu":
        return 0
    return max(bytes_of(given["self"]), bytes_of(given["target"]))


def _loss(given: Arguments, result: Any) -> int:
    """Count the terms; a mean of half precision needs a wider copy."""
    terms = 0 if given.get("reduction", _MEAN) == _NONE else bytes_of(given["self"])
    return terms + _cross_entropy_of_probabilities(given, result)


def _cross_entropy_of_probabilities(given: Arguments, _: Any) -> int:
    source = given["self"]
    is_half = source.element_size() < torch.float32.itemsize and given.get("reduction", _MEAN) == _MEAN
    return source.numel() * torch.float32.itemsize if is_half else 0


def _cross_entropy(given: Arguments, _: Any) -> int:
    source = given["self"]
    return 0 if source.is_contiguous() else bytes_of(source) + source[..., 0].numel() * torch.int64.itemsize * 2


def _safe_softmax(given: Arguments, _: Any) -> int:
    """Count two masks: of elements and of rows."""
    source = given["self"]
    rows = source.numel() // max(1, source.shape[given["dim"]]) if source.dim() else 1
    return source.numel() + rows


def _mean(given: Arguments, result: torch.Tensor) -> int:
    """Half-precision numbers are summed in single precision."""
    halves = given["self"].dtype in HALF_TYPES
    return single_precision_bytes(given["self"]) + single_precision_bytes(result) if halves else 0


def _converted(given: Arguments, result: torch.Tensor) -> int:
    source = given["self"]
    return source.numel() * result.element_size() if source.dtype != result.dtype else 0


def _sum(given: Arguments, result: torch.Tensor) -> int:
    """A half-precision sum over several strides counts as `_mean`."""
    source = given["self"]
    if source.dtype != result.dtype:
        return _converted(given, result)
    dims: Any = given.get("dim")
    return _mean(given, result) if _sums_several_strides(source, dims) else 0


def _sums_several_strides(source: torch.Tensor, dims: list[int] | None) -> bool:
    """Return whether no single stride traverses the summed dimensions, by default all."""
    if not source.dim():
        return False
    summed = [(source.stride(dim), source.shape[dim]) for dim in dims or range(source.dim()) if source.shape[dim] != 1]
    summed.sort()
    return any(outer[0] != inner[0] * inner[1] for inner, outer in pairwise(summed))


def _sort(given: Arguments, _: Any) -> int:
    source = given["self"]
    return source.shape[given.get("dim", -1)] * torch.int64.itemsize if source.dim() else 0


def _single_precision_result(given: Arguments, result: torch.Tensor) -> int:
    """Half-precision results are computed in single precision, and indices are cast to 64 bits."""
    index = given["index"]
    indices = 0 if index.dtype == torch.int64 else index.numel() * torch.int64.itemsize
    return indices + (single_precision_bytes(result) if result.dtype in HALF_TYPES else 0)


RULES_OF_REDUCTIONS: dict[str, Callable[[Arguments, Any], int]] = {
    **dict.fromkeys(("cumsum", "cumprod", "prod"), _converted),
    "sum": _sum,
    **dict.fromkeys(("scatter", "scatter_add", "gather", "index_add"), _single_precision_result),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss"), _loss),
    "binary_cross_entropy": _cross_entropy_of_probabilities,
    "binary_cross_entropy_with_logits": lambda given, _: single_precision_bytes(given["self"], 2),
    "nll_loss_forward": _cross_entropy,
    "_safe_softmax": _safe_softmax,
    "mean": _mean,
    "sort": _sort,
    "argsort": lambda given, result: bytes_of(given["self"]) + _sort(given, result),
    "kthvalue": lambda given, _: bytes_of(given["self"]) + given["self"].numel() * torch.int64.itemsize,
    "logsumexp": lambda given, result: bytes_of(given["self"]) + bytes_of(result),
}
