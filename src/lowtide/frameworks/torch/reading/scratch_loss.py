"""What losses take for themselves on the CPU, and what their results keep."""

from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.nodes import map_nodes
from lowtide.frameworks.torch.internals.operators import op_name, overload_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.reading.tensor_forms import bytes_of, contiguous_copy

Arguments = dict[str, Any]

_KEEPING = ("mse_loss", "smooth_l1_loss", "binary_cross_entropy")
"""Losses that are summed up in the storage of their single terms, which the one number that is left keeps."""
_NONE, _MEAN = 0, 1
"""Kinds of reduction, as PyTorch numbers them."""


def loss(given: Arguments, _: Any) -> int:
    """Return the scratch of a loss of element-wise terms: the terms, and for a mean of half precision a wider form."""
    source, reduction = given["self"], given.get("reduction", _MEAN)
    if reduction == _NONE:
        return 0
    is_half = source.element_size() < torch.float32.itemsize and reduction == _MEAN
    return bytes_of(source) + (source.numel() * torch.float32.itemsize if is_half else 0)


def cross_entropy_of_probabilities(given: Arguments, _: Any) -> int:
    """Return the scratch of a loss whose terms are made where the result will be: a wider form of half precision."""
    source = given["self"]
    is_half = source.element_size() < torch.float32.itemsize and given.get("reduction", _MEAN) == _MEAN
    return source.numel() * torch.float32.itemsize if is_half else 0


def loss_of_logits(given: Arguments, _: Any) -> int:
    """Return the scratch of cross-entropy of logits: two temporaries, in single precision at least."""
    return 2 * given["self"].numel() * max(given["self"].element_size(), torch.float32.itemsize)


def cross_entropy(given: Arguments, _: Any) -> int:
    """Return the scratch of the loss of chosen logarithms: a copy where they are not contiguous, and one term a row."""
    source = given["self"]
    if source.is_contiguous():
        return 0
    return contiguous_copy(source) + source[..., 0].numel() * torch.int64.itemsize * 2


def kept_bytes(node: Node) -> int:
    """Return the bytes of the storage that a loss on the CPU keeps beyond what its shape says; 0 for other nodes."""
    target = overload_of(node.target)
    if target is None or target.namespace != "aten" or op_name(target) not in _KEEPING:
        return 0
    given: Arguments = {name: map_nodes(value, hinted_value_of) for name, value in arguments_by_name(node).items()}
    if given.get("reduction", _MEAN) == _NONE or given["self"].device.type != "cpu":
        return 0
    return max(bytes_of(given["self"]), bytes_of(given["target"]))
