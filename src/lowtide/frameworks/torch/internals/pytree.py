"""PyTorch's tree functions for nested containers."""

from typing import Any

import torch
from torch.utils._pytree import TreeSpec as TreeSpec
from torch.utils._pytree import keystr as keystr
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_flatten_with_path as tree_flatten_with_path
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map
from torch.utils._pytree import tree_map_only as tree_map_only
from torch.utils._pytree import tree_unflatten as tree_unflatten


def tensors_in(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
