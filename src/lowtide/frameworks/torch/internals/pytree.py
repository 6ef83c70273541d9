"""PyTorch's tree functions for nested containers."""

from typing import Any, cast

import torch
from torch.utils._pytree import TreeSpec as TreeSpec
from torch.utils._pytree import keystr as keystr
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_flatten_with_path as tree_flatten_with_path
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map
from torch.utils._pytree import tree_map_only as tree_map_only
from torch.utils._pytree import tree_unflatten as tree_unflatten

_PLAIN = {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout}


def is_plain(leaf: object) -> bool:
    """Return whether a leaf is a tensor, or holds none."""
    return isinstance(leaf, (torch.Tensor, *_PLAIN, torch.SymInt, torch.SymFloat, torch.SymBool, complex, slice))


def tensors_in(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[torch.Tensor]) -> None:
    kind = cast("type[Any]", type(value))
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif kind is tuple or kind is list:
        for each in value:
            _collect(each, found)
    elif kind not in _PLAIN:
        found += (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))
