"""Calls of a program's graphs in one step, and their memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lowtide.frameworks.torch.internals.tensors import storage_bytes, storage_key
from lowtide.frameworks.torch.planning.planned_program import PlannedModule

Storages = dict[int, int]


@dataclass(slots=True, eq=False)
class GraphCall:
    """Bytes around a graph's call; backward passes of a step run in reverse order."""

    planned: PlannedModule
    held: int
    """Held by earlier calls and code outside of graphs."""
    outside: int
    saved: Storages
    own_saved: int
    """Saved for backward without lowtide."""
    gradients: int
    """Left by its backward pass."""
    given: Storages
    returned: Storages
    tangents: int

    @property
    def peak(self) -> int:
        return self.planned.predicted_peak_bytes[self.planned.graph.spaces[0].name]

    @property
    def lower_bound(self) -> int:
        """Before fusion; 0 if unknown."""
        return self.planned.result.lower_bound_bytes.get(self.planned.graph.spaces[0].name, 0)

    def held_at(self, part: float) -> int:
        return self.outside + int(part * (self.held - self.outside))


def peak_of_calls(calls: Sequence[GraphCall], *, own: bool) -> int:
    """Return the peak of all calls, with `own` without lowtide."""
    peak = saved = 0
    for place, call in enumerate(calls):
        own_peak = call.planned.own_peak_bytes if own else None
        need = call.peak if own_peak is None else own_peak
        held = saved + call.outside if own else call.held
        peak = max(peak, held + need + gradients_after(calls, place))
        saved += call.own_saved
    return peak


def bytes_of_later_calls(calls: Sequence[GraphCall], place: int) -> int:
    """Return the peak of later calls, without this call's outputs, their gradients, and its saved tensors."""
    first, later = calls[place], calls[place + 1 :]
    peak, saved = 0, Storages()
    for after, call in enumerate(later):
        held = max(0, call.held - first.held - sum(first.saved.values()))
        shared = sum(size for key, size in first.returned.items() if key in call.given or key in saved)
        peak = max(peak, held + call.peak + gradients_after(later, after) - shared - first.tangents)
        saved |= call.saved
    return peak


def gradients_after(calls: Sequence[GraphCall], place: int) -> int:
    return sum(call.gradients for call in calls[place + 1 :])


def storages_of(values: Iterable[Any]) -> Storages:
    return {storage_key(each): storage_bytes(each) for each in values if isinstance(each, torch.Tensor)}
