"""Real tensors in place of fake ones, to run single ops."""

import math
from typing import Any

import torch

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.tensors import plain_number


def stand_in(value: Any) -> Any:
    """Return nested values with real tensors of the same form, and plain numbers.

    Floats are random between 0 and 1. Integers are 0, a valid index, and masks are True.
    """
    return pytree.tree_map(_of_leaf, value)


def form_of(value: Any) -> str:
    """Return a key for arguments of equal cost."""
    return repr(pytree.tree_map(_form_of_leaf, value))


def _of_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        shape, strides = _numbers(leaf.shape), _numbers(leaf.stride())
        reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        flat = _numbers_of(leaf.dtype, leaf.device, 1 + sum(reach) if math.prod(shape) else 0)
        return flat.as_strided(shape, strides)
    return plain_number(leaf)


def _numbers_of(dtype: torch.dtype, device: torch.device, count: int) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.ones(count, dtype=dtype, device=device)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.rand(count, device=device).to(dtype)
    return torch.zeros(count, dtype=dtype, device=device)


def _form_of_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return _numbers(leaf.shape), _numbers(leaf.stride()), leaf.dtype, leaf.device
    return plain_number(leaf)


def _numbers(sizes: Any) -> tuple[int, ...]:
    return tuple(int(plain_number(size)) for size in sizes)
