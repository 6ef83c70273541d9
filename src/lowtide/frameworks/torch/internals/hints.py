"""What stands for symbolic values in planning; asking specializes nothing.

A graph with dynamic shapes is planned for the sizes that `sizes.hint` gives. What is right only for those sizes must
not get into the program: for that there is `is_always`.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.sizes import hint, most
from lowtide.frameworks.torch.internals.tensors import plain_number


def hinted_value_of(node: Node) -> Any:
    """Return what a node stands for, every symbolic number and shape replaced by the value it is planned at."""
    value = value_of(node)
    return _hinted(value) if isinstance(value, torch.Tensor) else pytree.tree_map(_hinted, value)


def stand_in(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a tensor without memory."""
    with _static_shapes():
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def is_symbolic(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's shape or strides depend on symbols."""
    return any(isinstance(size, torch.SymInt) for size in (*tensor.shape, *tensor.stride()))


def depends_on_values(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's size is known only when the program runs, such as a number of selected rows."""
    has_symbols = any(isinstance(size, torch.SymInt) for size in tensor.shape)  # asking for them all takes long
    return has_symbols and bool(free_unbacked_symbols(tensor))


def gives_as_much_as_values_say(node: Node) -> bool:
    """Tell whether sizes of a node's results depend on values, and not for what it was given."""
    return _is_sized_by_values(node) and not any(map(_is_sized_by_values, node.all_input_nodes))


def _is_sized_by_values(node: Node) -> bool:
    leaves = pytree.tree_leaves(value_of(node))
    return any(isinstance(leaf, torch.Tensor) and depends_on_values(leaf) for leaf in leaves)


def is_limited(tensor: torch.Tensor) -> bool:
    """Tell whether the most is known that each size and stride of a tensor can be."""
    sizes = (*tensor.shape, *tensor.stride())
    return all(not isinstance(size, torch.SymInt) or most(size) is not None for size in sizes)


def is_always(condition: Any) -> bool:
    """Tell whether a condition on sizes holds for all sizes that a graph may be called with."""
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
