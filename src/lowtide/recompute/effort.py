"""How much work planning within a budget may do; always counted, never timed, so that every machine plans the same."""

from dataclasses import dataclass

from lowtide.effort import EffortName


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Limits of one search."""

    play_work: int
    """Accesses played for plans of cuts; some 100,000,000 a second."""
    run_work: int
    """Accesses played and arcs looked at for plans of runs where those of cuts are far from their bound, and as many
    where the solver leaves a gap; some 300,000,000 a second."""
    solver_work: int
    """Work of the solver over all its calls, see `solver.Solved`; some 700,000 a second."""
    rounds: int
    """Calls of the solver, each with more places counted than the one before."""
    relative_gap: float
    """How close the extra cost must come to its bound before the search ends."""


EFFORTS: dict[EffortName, Effort] = {
    "fast": Effort(play_work=100_000_000, run_work=30_000_000, solver_work=1_000_000, rounds=3, relative_gap=0.02),
    "balanced": Effort(
        play_work=300_000_000, run_work=600_000_000, solver_work=14_000_000, rounds=12, relative_gap=0.0095
    ),
    "max": Effort(
        play_work=20_000_000_000, run_work=60_000_000_000, solver_work=1_000_000_000, rounds=60, relative_gap=0.0
    ),
}
"""By name, least first."""
