"""Plans for less until the kernels that Inductor makes of them fit: what is planned is not yet fused."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

TRIES = 4
MIN_GAIN = 0.05
"""The share of the budget, or of the least need, that a target between must promise: compiling takes long, too."""
MAX_FACTOR = 2.0
"""How many times the excess the next plan is asked for less, where the last step down did not help."""
Compiled = TypeVar("Compiled")


@dataclass(frozen=True, slots=True)
class Attempt(Generic[Compiled]):
    """What became of one plan."""

    target: int
    """The bytes that it was planned for."""
    compiled: Compiled
    excess_bytes: int
    """What the kernels need beyond the budget, as far as it is known; less than 0 where they leave some of it."""
    planned_bytes: int
    """What the plan needs, before its kernels are fused."""
    is_least: bool
    """Whether no plan for less is to be had."""
    is_free: bool
    """Whether nothing runs again and nothing is copied, so that no plan for more is better."""

    @property
    def fits(self) -> bool:
        """Whether the kernels are within the budget."""
        return self.excess_bytes <= 0


def least_excess(first: Attempt[Compiled], attempt: Callable[[int], Attempt[Compiled] | None]) -> Attempt[Compiled]:
    """Return the attempt of the largest target found that fits the budget, which is the target of the `first`.

    Where none fits, it is the one that needs least beyond it. `attempt` plans for so many bytes and compiles, and is
    None where there is no such plan. It is asked for less than the last plan needed, by what its kernels needed too
    much, and for up to twice as much less where the last step down helped little, until they fit. Where they then leave
    much of the budget, it is asked for what would meet the budget if needs grew in proportion (regula falsi). Where no
    plan needs less and its kernels miss, it is asked for goals between what that plan needs and the least that kernels
    did, by halves: a plan that runs nearly all again can lose more to fusion than it saves. Four attempts in all; a
    first one that fits is the only one.
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
    """Return a target in the middle between two needs; None where it is not worth it."""
    return (low + high) // 2 if high - low >= MIN_GAIN * high else None


def _target_below(missed: Sequence[Attempt[Compiled]]) -> int:
    """Return a target below those that were missed, in their order."""
    last = missed[-1]
    times = 1.0
    if len(missed) > 1:
        before = missed[-2]
        helped, went = before.excess_bytes - last.excess_bytes, before.target - last.target
        times = min(max(went / helped, 1.0), MAX_FACTOR) if helped > 0 else MAX_FACTOR
    return min(last.target, last.planned_bytes) - int(times * last.excess_bytes)


def _target_above(best: Attempt[Compiled], missed: Sequence[Attempt[Compiled]], budget: int) -> int | None:
    """Return a target above one that was met, below those that were missed; None where none is worth it."""
    left = -best.excess_bytes
    if best.is_free or not missed or left < MIN_GAIN * budget:
        return None
    over = missed[-1]
    target = best.target + (over.target - best.target) * left // (left + over.excess_bytes)
    return target if target > best.target else None
