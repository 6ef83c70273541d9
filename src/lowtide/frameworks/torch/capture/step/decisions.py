"""Branches that a captured step took because of small state and settings, and whether it would take them again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.symbolic_scalars import SYMBOLIC, holds, number_for


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a followed tensor among the arguments of an op."""

    number: int


class ScalarOp(NamedTuple):
    """One op on followed tensors."""

    function: Any
    args: Any
    """With slots in the places of tensors."""
    kwargs: Any
    results: list[Any]
    """Where every result goes: a slot, the name of a symbol, or nowhere."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """Conditions on small state and settings that a captured graph rests on, and how to compute what they speak of."""

    conditions: tuple[Any, ...]
    initial: tuple[Any, ...]
    """Per slot, the position of the input it starts from, a constant, or nothing."""
    ops: tuple[ScalarOp, ...]

    def hold(self, sources: Sequence[Any], settings: Mapping[str, Any]) -> bool:
        """Tell whether given inputs, and settings by symbol, would take the same branches."""
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
