"""Check that a captured step would take the same branches on its batch, buffers and settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from lowtide.frameworks.torch.capture.state.signature import is_small, makes_constants
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.fake_tensors import is_fake
from lowtide.frameworks.torch.internals.operators import is_mutable
from lowtide.frameworks.torch.internals.runtime import DispatchMode, without_modes
from lowtide.frameworks.torch.internals.symbolic_scalars import (
    SYMBOLIC,
    assumed,
    holds,
    note_number,
    number_for,
    number_of,
    symbols_in,
)
from lowtide.frameworks.torch.reading.effects import overwritten_tensors


@dataclass(frozen=True, slots=True)
class Slot:
    """A followed tensor among an op's arguments."""

    number: int


class ScalarOp(NamedTuple):
    function: Any
    args: Any
    kwargs: Any
    results: list[Any]
    """Per result, a slot, the name of a symbol, or None."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """The conditions of a captured graph, with the ops that compute them."""

    conditions: tuple[Any, ...]
    initial: tuple[Any, ...]
    ops: tuple[ScalarOp, ...]

    def hold(self, sources: Sequence[Any], settings: Mapping[str, Any]) -> bool:
        if not self.conditions:
            return True
        numbers = dict(settings)
        slots: list[Any] = [None] * len(self.initial)

        def real(leaf: Any) -> Any:
            if isinstance(leaf, Slot):
                if slots[leaf.number] is None:
                    start = self.initial[leaf.number]
                    slots[leaf.number] = (sources[start] if isinstance(start, int) else start).detach().clone()
                return slots[leaf.number]
            return number_for(leaf, numbers) if isinstance(leaf, SYMBOLIC) else leaf

        with torch.no_grad():
            for op in self.ops:
                args, kwargs = pytree.tree_map(real, (op.args, op.kwargs))
                results = pytree.tree_leaves(op.function(*args, **kwargs))
                for place, value in zip(op.results, results, strict=True):
                    if isinstance(place, Slot):
                        slots[place.number] = value
                    elif place is not None:
                        numbers[place] = value
        return all(holds(condition, numbers) for condition in self.conditions)


class _Followed(NamedTuple):
    traced: torch.Tensor
    value: torch.Tensor
    slot: Slot


class ScalarValues(DispatchMode):
    """Runs ops on followed tensors for real while tracing. A branch on another value ends the capture."""

    def __init__(self, shape_env: ShapeEnv) -> None:
        super().__init__()
        self._shape_env = shape_env
        self._followed: dict[int, _Followed] = {}
        self._initial: list[Any] = []
        self._ops: list[ScalarOp] = []

    def follow(self, traced: torch.Tensor, value: torch.Tensor, position: int) -> None:
        with without_modes():
            self._add(traced, value.detach().clone(), position)

    def decisions(self) -> Decisions:
        conditions = assumed(self._shape_env)
        wanted = {name for condition in conditions for name in symbols_in(condition)}
        needed: list[ScalarOp] = []
        slots: set[int] = set()
        for op in reversed(self._ops):
            made = {each.number for each in op.results if isinstance(each, Slot)}
            if wanted.intersection(op.results) or slots & made or (is_mutable(op.function) and slots & _slots(op)):
                needed.append(op)
                slots |= _slots(op)
                wanted.update(name for leaf in _leaves(op, SYMBOLIC) for name in symbols_in(leaf.node.expr))
        return Decisions(tuple(conditions), tuple(self._initial), tuple(reversed(needed)))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given: dict[str, Any] = dict(kwargs or {})
        result = func(*args, **given)
        tensors = pytree.tensors_in((args, given))
        is_followed = any(id(tensor) in self._followed or _is_constant(tensor) for tensor in tensors)
        if not (is_followed or (not tensors and makes_constants(func, result))):
            return result
        with without_modes():
            known = all(id(tensor) in self._followed or self._add_constant(tensor) for tensor in tensors)
            repeatable = known and is_small(result) and torch.Tag.nondeterministic_seeded not in func.tags
            real = pytree.tree_map(self._real, (args, given)) if repeatable else None
            if real is not None and not _unknown(pytree.tree_leaves((args, given)), pytree.tree_leaves(real)):
                slots: Any = pytree.tree_map(self._recorded, (args, given))
                results = self._note(result, func(*real[0], **real[1]))
                self._ops.append(ScalarOp(func, slots[0], slots[1], results))
                return result
        for tensor in overwritten_tensors(func, args, given):
            self._followed.pop(id(tensor), None)
        return result

    def _add(self, traced: torch.Tensor, value: torch.Tensor, initial: Any) -> Slot:
        slot = Slot(len(self._initial))
        self._initial.append(initial)
        self._followed[id(traced)] = _Followed(traced, value, slot)
        return slot

    def _add_constant(self, tensor: torch.Tensor) -> bool:
        if _is_constant(tensor):
            self._add(tensor, tensor.clone(), tensor.clone())
        return id(tensor) in self._followed

    def _real(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self._followed[id(leaf)].value
        return number_of(self._shape_env, leaf) if isinstance(leaf, SYMBOLIC) else leaf

    def _recorded(self, leaf: Any) -> Any:
        return self._followed[id(leaf)].slot if isinstance(leaf, torch.Tensor) else leaf

    def _note(self, result: Any, real: Any) -> list[Any]:
        noted: list[Any] = []
        for traced, value in zip(pytree.tree_leaves(result), pytree.tree_leaves(real), strict=True):
            if isinstance(traced, torch.Tensor):
                noted.append(self._add(traced, value, None))
            elif isinstance(traced, SYMBOLIC):
                noted.append(note_number(self._shape_env, traced, value))
            else:
                noted.append(None)
        return noted


def _leaves(op: ScalarOp, kind: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves((op.args, op.kwargs)) if isinstance(leaf, kind)]


def _slots(op: ScalarOp) -> set[int]:
    return {leaf.number for leaf in _leaves(op, Slot)}


def _is_constant(tensor: torch.Tensor) -> bool:
    return not is_fake(tensor) and tensor.numel() == 1


def _unknown(leaves: list[Any], real: list[Any]) -> bool:
    return any(isinstance(leaf, SYMBOLIC) and value is None for leaf, value in zip(leaves, real, strict=True))
