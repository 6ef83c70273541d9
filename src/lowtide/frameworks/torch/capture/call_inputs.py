"""The tensors among the arguments of a call."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.reading.captured import CaptureMismatchError

_TENSOR = object()


@dataclass(frozen=True, eq=False)
class CallInputs:
    """A call with its tensors taken out."""

    spec: pytree.TreeSpec
    leaves: tuple[Any, ...]
    tensors: tuple[torch.Tensor, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "CallInputs":
        paths, spec = pytree.tree_flatten_with_path((tuple(args), {name: kwargs[name] for name in sorted(kwargs)}))
        leaves = [leaf for _, leaf in paths]
        names = tuple(_name_of(path) for path, leaf in paths if isinstance(leaf, torch.Tensor))
        tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        return cls(spec, tuple(_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves), tensors, names)

    def rebuild(self, tensors: list[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        remaining = iter(tensors)
        leaves = [next(remaining) if leaf is _TENSOR else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the tensors of another call. Raises CaptureMismatchError if other arguments or tensor forms differ."""
        other = CallInputs.of(args, kwargs)
        if other.spec != self.spec:
            raise CaptureMismatchError("the arguments have another structure than the captured ones; capture again")
        for position, (mine, theirs) in enumerate(zip(self.leaves, other.leaves, strict=True)):
            if mine is not theirs and (mine is _TENSOR or theirs is _TENSOR or mine != theirs):
                raise CaptureMismatchError(f"argument {position} differs from the captured one; capture again")
        for position, (mine, theirs) in enumerate(zip(self.tensors, other.tensors, strict=True)):
            if _form(mine) != _form(theirs):
                raise CaptureMismatchError(f"tensor argument {position} is {_form(theirs)}, captured was {_form(mine)}")
        return list(other.tensors)


def _name_of(path: Any) -> str:
    is_keyword, first, *rest = path[0].idx == 1, *path[1:]
    return (str(first.key) if is_keyword else f"input[{first.idx}]") + pytree.keystr(tuple(rest))


def _form(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)} with strides {tensor.stride()} on {tensor.device}"
