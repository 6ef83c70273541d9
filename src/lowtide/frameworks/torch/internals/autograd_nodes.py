"""Autograd nodes: the tensors that compiled and eager nodes save for backward."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Sequence
from typing import Any

import torch

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.tensors import storage_key


def backward_of(results: Any) -> Any | None:
    """Return the autograd node that runs AOTAutograd's backward pass, or None if no result has one."""
    for leaf in pytree.tree_leaves(results):
        node = leaf.grad_fn if isinstance(leaf, torch.Tensor) else None
        if node is not None and _is_compiled(node):
            return node
    return None


def saved_by(node: Any) -> list[torch.Tensor]:
    """Return the tensors that a compiled node saves."""
    unchecked = getattr(node, "_tensors_no_vc_check", None) or []
    return [each for each in (*node.saved_tensors, *unchecked) if isinstance(each, torch.Tensor)]


def saved_outside(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors, except leaves, that eager autograd nodes before the inputs save."""
    waiting = [each.grad_fn for each in inputs if isinstance(each, torch.Tensor)]
    saved: list[torch.Tensor] = []
    leaves: set[int] = set()
    seen: set[Any] = set()
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [before for before, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            leaves.add(storage_key(leaf))
        elif not _is_compiled(node):
            saved += _saved_by_eager(node)
    return [each for each in saved if storage_key(each) not in leaves]


def _is_compiled(node: Any) -> bool:
    return type(node).__name__ == "CompiledFunctionBackward"


def _saved_by_eager(node: Any) -> list[torch.Tensor]:
    """Return the tensors that an eager node saves, without calling unpack hooks."""
    found: list[Any] = []
    for name in dir(node):
        if name.startswith("_raw_saved_"):
            try:
                saved = getattr(node, name)
                found += [each.data for each in (saved if isinstance(saved, (tuple, list)) else [saved])]
            except RuntimeError:  # its backward pass is over
                continue
    return [each for each in found if isinstance(each, torch.Tensor)]
