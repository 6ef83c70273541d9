"""Plans for less until the kernels that Inductor makes of them fit: what is planned is not yet fused."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

TRIES = 4
WORTH_A_TRY = 0.05
"""The share of the budget that kernels must leave for a goal between to be tried: compiling takes long, too."""
MOST_TIMES = 2.0
"""How many times the excess the next plan is asked for less, where the last step down did not help."""
Compiled = TypeVar("Compiled")


@dataclass(frozen=True, slots=True)
class Attempt(Generic[Compiled]):
    """What became of one plan."""

    goal: int
    """The bytes that it was planned for."""
    compiled: Compiled
    excess_bytes: int
    """What the kernels need beyond the budget, as far as it is known; less than 0 where they leave some of it."""
    is_least: bool
    """Whether no plan for less is to be had."""
    is_free: bool
    """Whether nothing runs again and nothing is copied, so that no plan for more is better."""

    @property
    def fits(self) -> bool:
        """Whether the kernels are within the budget."""
        return self.excess_bytes <= 0


def least_excess(first: Attempt[Compiled], attempt: Callable[[int], Attempt[Compiled] | None]) -> Attempt[Compiled]:
    """Return the attempt of the largest goal found that fits the budget, which is the goal of the `first`.

    Where none fits, it is the one that needs least beyond it. `attempt` plans for so many bytes and compiles, and is
    None where there is no such plan. It is asked for less by what the kernels of the last one needed too much, and for
    up to twice as much less where the last step down helped little, until they fit. Where they then leave much of the
    budget, it is asked for what would meet the budget if needs grew in proportion (regula falsi). Four attempts in all;
    a first one that fits is the only one.
    """
    best = first
    missed = [] if first.fits else [first]
    for _ in range(TRIES - 1):
        goal = _goal_above(best, missed, first.goal) if best.fits else _goal_below(missed)
        found = None if goal is None else attempt(goal)
        if found is None:
            break
        if not found.fits:
            missed.append(found)
        if found.fits or found.excess_bytes < best.excess_bytes:
            best = found
    return best


def _goal_below(missed: Sequence[Attempt[Compiled]]) -> int | None:
    """Return a goal below those that were missed, in their order; None where there is no plan for less."""
    last = missed[-1]
    if last.is_least:
        return None
    times = 1.0
    if len(missed) > 1:
        before = missed[-2]
        helped, went = before.excess_bytes - last.excess_bytes, before.goal - last.goal
        times = min(max(went / helped, 1.0), MOST_TIMES) if helped > 0 else MOST_TIMES
    return last.goal - int(times * last.excess_bytes)


def _goal_above(best: Attempt[Compiled], missed: Sequence[Attempt[Compiled]], budget: int) -> int | None:
    """Return a goal above one that was met, below those that were missed; None where none is worth it."""
    left = -best.excess_bytes
    if best.is_free or not missed or left < WORTH_A_TRY * budget:
        return None
    over = missed[-1]
    goal = best.goal + (over.goal - best.goal) * left // (left + over.excess_bytes)
    return goal if goal > best.goal else None
