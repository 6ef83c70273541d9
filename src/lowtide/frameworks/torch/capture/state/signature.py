"""Signatures of runs on fake tensors; equal signatures mean one program."""

import hashlib
from typing import Any, cast

import torch
from torch import nn

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.capture.state.names import calling_line
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.fake_tensors import constant_of, is_fake
from lowtide.frameworks.torch.internals.operators import is_mutable, op_name
from lowtide.frameworks.torch.internals.runtime import DispatchMode, without_modes
from lowtide.frameworks.torch.reading.effects import overwritten_tensors

_MOST_DECIDING = 1 << 20
_MAKE_CONSTANTS = {"arange", "eye", "full", "linspace", "ones", "scalar_tensor", "zeros"}
_MOST_BYTES = 1 << 16


class SignatureRecorder(DispatchMode):
    """Records the ops of a run: operators, constants, and origins of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.is_paused = False
        self.reads_at: str | None = None
        """The first line that read a number from a tensor that may differ in the next call."""
        self._real: dict[int, torch.Tensor] = {}
        self._changing: set[int] = set()
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []
        """References that keep each `id` unique."""

    def number(self, tensor: torch.Tensor) -> int:
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self._kept)
            self._kept.append(tensor)
        return self._numbers[id(tensor)]

    def finish(self, *facts: Any) -> tuple[Any, ...]:
        """Return a comparable value that keeps constants alive."""
        constants = [each for each in self._kept if isinstance(each, torch.Tensor) and not _is_traced(each)]
        self._numbers.clear()
        self._kept.clear()
        return (*facts, tuple(self.calls), _Alive(constants))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given: dict[str, Any] = kwargs or {}
        if self.is_paused:
            return self.run(func, args, given)
        if is_mutable(func) and not any(map(_is_traced, pytree.tensors_in((args, given)))):
            raise UnsupportedError(
                f"the step writes into a tensor{calling_line()} that is neither parameter, buffer nor argument; "
                "make it a buffer of the module or pass it as an argument"
            )
        call = (func, self._token(args), self._token(tuple(given.items())))
        result = self.run(func, args, given)
        self._follow_results(func, args, given, result)
        for tensor in pytree.tensors_in(result):
            self.number(tensor)
        self.calls.append(call)
        return result

    def follow(self, tensor: torch.Tensor, value: torch.Tensor, *, may_change: bool = False) -> None:
        """Compute with a real value where only followed tensors are used."""
        self.number(tensor)
        if may_change:
            self._changing.add(id(tensor))
        with without_modes():
            self._real[id(tensor)] = value.detach().clone()

    def _follow_results(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        tensors = pytree.tensors_in((args, kwargs))
        if not any(id(tensor) in self._real for tensor in tensors) and (tensors or not makes_constants(func, result)):
            return
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        if is_random or not is_small(result) or any(map(_is_traced, map(self._value_of, tensors))):
            for written in overwritten_tensors(func, args, kwargs):
                self._real.pop(id(written), None)
            return
        with without_modes():
            real = pytree.tree_map_only(torch.Tensor, self._value_of, (args, kwargs))
            found = pytree.tree_leaves(func(*real[0], **real[1]))
        changes = any(id(tensor) in self._changing for tensor in tensors)
        for tensor, value in zip(pytree.tree_leaves(result), found, strict=True):
            if isinstance(tensor, torch.Tensor):
                self.number(tensor)  # keeps its `id` unique
                self._real[id(tensor)] = value
                if changes:
                    self._changing.add(id(tensor))

    def _value_of(self, tensor: torch.Tensor) -> torch.Tensor:
        known = self._real.get(id(tensor), constant_of(tensor))
        return tensor if known is None else known

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an op. Numbers read from unfollowed tensors are invented."""
        if func is torch.ops.aten._local_scalar_dense.default:
            known = self._value_of(args[0])
            is_known = known is not args[0]
            if (not is_known or id(args[0]) in self._changing) and self.reads_at is None and not self.is_paused:
                self.reads_at = calling_line()
            if is_known:
                with without_modes():
                    return known.item()
            dtype: torch.dtype = args[0].dtype
            return True if dtype is torch.bool else 0.625 if dtype.is_floating_point else 3
        return func(*args, **kwargs)

    def _token(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.number(value) if _is_traced(value) else self._constant(value)
        if isinstance(value, list | tuple):
            return tuple(map(self._token, cast("list[Any]", value)))
        if isinstance(value, float | int | complex | bool | str | type(None)):
            return type(value).__name__, repr(value)
        if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
            return value
        self._kept.append(value)
        return "object", id(value)

    def _constant(self, tensor: torch.Tensor) -> Any:
        if tensor.device.type != "cpu" or tensor.numel() * tensor.element_size() > _MOST_BYTES:
            return "constant", id(tensor), self.number(tensor)
        with without_modes():
            content = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        digest = hashlib.sha256(content).digest()
        return "constant", tensor.dtype, tuple(tensor.shape), digest


def may_decide(value: torch.Tensor) -> bool:
    """Return whether Python conditions may depend on a tensor: a small one of the batch, or a small buffer."""
    is_given = not (is_fake(value) or value.requires_grad or isinstance(value, nn.Parameter))
    return is_given and value.numel() <= _MOST_DECIDING


def is_small(result: Any) -> bool:
    sizes = [tensor.numel() for tensor in pytree.tensors_in([result])]
    return all(type(size) is int and size <= _MOST_DECIDING for size in sizes)


def makes_constants(func: Any, result: Any) -> bool:
    return op_name(func) in _MAKE_CONSTANTS and isinstance(result, torch.Tensor) and result.device.type == "cpu"


def _is_traced(tensor: torch.Tensor) -> bool:
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter)


class _Alive:
    """Objects that stay alive with a signature, ignored in comparisons."""

    def __init__(self, objects: list[Any]) -> None:
        self._objects = objects

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Alive)
