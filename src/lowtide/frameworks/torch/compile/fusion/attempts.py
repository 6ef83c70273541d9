"""Search the planning target at which Inductor's fused kernels fit the budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

TRIES = 4
MIN_GAIN = 0.05
"""Smallest gain, as a share of budget or need, worth another compilation."""
MAX_FACTOR = 2.0
"""Largest multiple of the excess by which the next target goes down."""
Compiled = TypeVar("Compiled")


@dataclass(frozen=True, slots=True)
class Attempt(Generic[Compiled]):
    """The outcome of one plan."""

    target: int
    compiled: Compiled
    excess_bytes: int
    """Negative if the kernels leave some of the budget."""
    planned_bytes: int
    is_least: bool
    """Whether no plan for fewer bytes exists."""
    is_free: bool
    """Whether nothing is recomputed or copied."""

    @property
    def fits(self) -> bool:
        return self.excess_bytes <= 0


def least_excess(first: Attempt[Compiled], attempt: Callable[[int], Attempt[Compiled] | None]) -> Attempt[Compiled]:
    """Return the fitting attempt with the largest target, else the one with the smallest excess, of at most four.

    The target of `first` is the budget. If kernels miss, the target goes down by up to twice the excess, then up by
    regula falsi. If no plan needs less, targets above its peak are bisected: recomputing nearly everything can lose
    more to fusion than it saves.
    """
    best = first
    missed = [] if first.fits else [first]
    low = first.planned_bytes if first.is_least else None
    for _ in range(TRIES - 1):
        if best.fits:
            target = _target_above(best, missed, first.target)
        elif low is None:
            target = _target_below(missed)
        else:
            target = _target_between(low, first.target + best.excess_bytes)
        found = None if target is None else attempt(target)
        if found is None:
            break
        is_better = found.fits or found.excess_bytes < best.excess_bytes
        if not found.fits:
            missed.append(found)
        if low is not None and not is_better:
            low = found.target
        elif low is None and found.is_least:
            low = found.planned_bytes
        if is_better:
            best = found
    return best


def _target_between(low: int, high: int) -> int | None:
    return (low + high) // 2 if high - low >= MIN_GAIN * high else None


def _target_below(missed: Sequence[Attempt[Compiled]]) -> int:
    last = missed[-1]
    times = 1.0
    if len(missed) > 1:
        before = missed[-2]
        helped, went = before.excess_bytes - last.excess_bytes, before.target - last.target
        times = min(max(went / helped, 1.0), MAX_FACTOR) if helped > 0 else MAX_FACTOR
    return min(last.target, last.planned_bytes) - int(times * last.excess_bytes)


def _target_above(best: Attempt[Compiled], missed: Sequence[Attempt[Compiled]], budget: int) -> int | None:
    left = -best.excess_bytes
    if best.is_free or not missed or left < MIN_GAIN * budget:
        return None
    over = missed[-1]
    target = best.target + (over.target - best.target) * left // (left + over.excess_bytes)
    return target if target > best.target else None
