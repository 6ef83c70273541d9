"""Planned values of symbolic shapes, and checks for all sizes; neither adds guards."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.tensors import hint, plain_number, upper_bound


def hinted_value_of(node: Node) -> Any:
    value = value_of(node)
    return _hinted(value) if isinstance(value, torch.Tensor) else pytree.tree_map(_hinted, value)


def stand_in(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    with _static_shapes():
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def is_symbolic(tensor: torch.Tensor) -> bool:
    return any(isinstance(size, torch.SymInt) for size in (*tensor.shape, *tensor.stride()))


def depends_on_values(tensor: torch.Tensor) -> bool:
    has_symbols = any(isinstance(size, torch.SymInt) for size in tensor.shape)  # the full search is slow
    return has_symbols and bool(free_unbacked_symbols(tensor))


def has_data_dependent_size(node: Node) -> bool:
    """Return whether the results of a node, but no inputs, have data-dependent sizes."""
    return _is_sized_by_values(node) and not any(map(_is_sized_by_values, node.all_input_nodes))


def _is_sized_by_values(node: Node) -> bool:
    return any(map(depends_on_values, pytree.tensors_in(value_of(node))))


def is_limited(tensor: torch.Tensor) -> bool:
    """Return whether all sizes and strides have upper bounds."""
    sizes = (*tensor.shape, *tensor.stride())
    return all(not isinstance(size, torch.SymInt) or upper_bound(size) is not None for size in sizes)


def is_always(condition: Any) -> bool:
    """Return whether a condition holds for all input sizes."""
    return statically_known_true(condition)


def _hinted(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return plain_number(value)
    if not is_symbolic(value):
        return value
    shape, strides = [hint(size) for size in value.shape], [hint(stride) for stride in value.stride()]
    return stand_in(shape, strides, value.dtype, value.device)


@cache
def _static_shapes() -> FakeTensorMode:
    return FakeTensorMode()
