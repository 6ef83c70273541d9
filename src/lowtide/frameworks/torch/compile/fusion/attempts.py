"""Plans for less until the kernels that Inductor makes of them fit: what is planned is not yet fused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

TRIES = 4
Compiled = TypeVar("Compiled")


@dataclass(frozen=True, slots=True)
class Attempt(Generic[Compiled]):
    """What became of one plan."""

    goal: int
    """The bytes that it was planned for."""
    compiled: Compiled
    excess_bytes: int
    """What the kernels need beyond the budget, as far as it is known."""
    is_least: bool
    """Whether no plan for less is to be had."""


def least_excess(first: Attempt[Compiled], attempt: Callable[[int], Attempt[Compiled] | None]) -> Attempt[Compiled]:
    """Return the attempt that fits the budget, which is the goal of the `first`, or the one that needs least beyond it.

    `attempt` plans for so many bytes and compiles; None where there is no such plan. It is asked for less by what the
    kernels of the last one needed too much, until they fit, four attempts in all.
    """
    best = last = first
    for _ in range(TRIES - 1):
        if not last.excess_bytes or last.is_least:
            break
        found = attempt(last.goal - last.excess_bytes)
        if found is None:
            break
        last = found
        if last.excess_bytes < best.excess_bytes:
            best = last
    return best
