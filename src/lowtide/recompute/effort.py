"""How much work planning within a budget may do; always counted, never timed, so that every machine plans the same."""

from dataclasses import dataclass

from lowtide.effort import EffortName


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Limits of one search."""

    solver_work: int
    """Steps of the solver times columns, over all its calls; some 700,000 a second."""
    rounds: int
    """Calls of the solver, each with more places counted than the one before."""
    relative_gap: float
    """How close the extra cost must come to its bound before the search ends."""


EFFORTS: dict[EffortName, Effort] = {
    "fast": Effort(solver_work=700_000, rounds=3, relative_gap=0.02),
    "balanced": Effort(solver_work=4_000_000, rounds=12, relative_gap=0.005),
    "max": Effort(solver_work=100_000_000, rounds=60, relative_gap=0.0),
}
"""By name, least first."""
