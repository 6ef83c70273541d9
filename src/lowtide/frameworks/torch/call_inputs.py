"""The tensors among the arguments of a call; everything else about the call is fixed by capturing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from lowtide.errors import UsageError

_TENSOR = object()


@dataclass(frozen=True, eq=False)
class CallInputs:
    """A call of a fixed form with its tensors taken out."""

    spec: pytree.TreeSpec
    leaves: tuple[Any, ...]
    """Every leaf of the arguments, a mark in the place of tensors."""
    tensors: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "CallInputs":
        """Split a call into tensors and the rest."""
        leaves, spec = pytree.tree_flatten((tuple(args), {name: kwargs[name] for name in sorted(kwargs)}))
        tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        return cls(spec, tuple(_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves), tensors)

    def rebuild(self, tensors: list[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments and keyword arguments with other tensors in the places of the captured ones."""
        remaining = iter(tensors)
        leaves = [next(remaining) if leaf is _TENSOR else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the tensors of another call; raises UsageError where it differs from the captured one in form."""
        other = CallInputs.of(args, kwargs)
        if other.spec != self.spec:
            raise UsageError("the arguments differ in structure from those captured; capture again with these")
        for position, (mine, theirs) in enumerate(zip(self.leaves, other.leaves, strict=True)):
            if mine is not theirs and (mine is _TENSOR or theirs is _TENSOR or mine != theirs):
                raise UsageError(f"argument {position} differs from the captured one; capture again with this value")
        for position, (mine, theirs) in enumerate(zip(self.tensors, other.tensors, strict=True)):
            if _form(mine) != _form(theirs):
                raise UsageError(f"tensor argument {position} is {_form(theirs)}, captured was {_form(mine)}")
        return list(other.tensors)


def _form(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)} with strides {tensor.stride()} on {tensor.device}"
