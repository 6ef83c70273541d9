"""What "fast", "balanced" and "max" mean to every search: limits on its work.

Work is counted, never timed, so that every machine finds the same.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from lowtide.core.errors import UsageError
from lowtide.core.suggestions import unknown

EffortName = Literal["fast", "balanced", "max"]
EFFORT_NAMES: tuple[EffortName, ...] = get_args(EffortName)
"""Least first."""
DEFAULT_EFFORT: EffortName = "balanced"


def check_effort(name: str) -> None:
    """Raise UsageError unless an effort has this name."""
    if name not in EFFORT_NAMES:
        raise UsageError(unknown("effort", name, EFFORT_NAMES))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEffort:
    """Limits of one search for an order, in arcs of flow graphs and ready ops looked at; some 10^9 a second."""

    cut_work: int
    """For the cuts that bound the peak and the moves that follow them."""
    fit_work: int
    """For exact search, over all budgets tried."""
    fit_ops: int
    """The largest graph that exact search is tried on, in ops."""


SEARCH_EFFORTS: dict[EffortName, SearchEffort] = {
    "fast": SearchEffort(cut_work=50_000_000, fit_work=50_000_000, fit_ops=5_000),
    "balanced": SearchEffort(cut_work=500_000_000, fit_work=8_000_000_000, fit_ops=100_000),
    "max": SearchEffort(cut_work=5_000_000_000, fit_work=200_000_000_000, fit_ops=200_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeEffort:
    """Limits of planning within one budget, for recomputation and offload."""

    play_work: int
    """Accesses played for plans of drops, more while none fits; some 100,000,000 a second."""
    state_work: int
    """Successors and frees tried by the exact search over all runs of small graphs; some 1,000,000 a second."""
    run_work: int
    """Accesses played and arcs looked at for plans of runs where those of drops are far from their bound, and as many
    where the solver leaves a gap; some 300,000,000 a second."""
    solver_work: int
    """Work of the solver over all its calls, see `recompute.solver.Solved`; some 700,000 a second."""
    rounds: int
    """Calls of the solver, each with more places counted than the one before."""
    relative_gap: float
    """How close the extra cost must come to its bound before the search ends."""
    near_gap: float | None
    """How close it must come for less than all of the work: the solver sees the last base order alone, with half of its
    work, and dearer orders are left alone. None where all of the work is always done."""

    def part(self, parts: int) -> "RecomputeEffort":
        """Return limits for one of several searches that share the work, but for the solver's."""
        played, states, runs = (work // parts for work in (self.play_work, self.state_work, self.run_work))
        return replace(self, play_work=played, state_work=states, run_work=runs)


RECOMPUTE_EFFORTS: dict[EffortName, RecomputeEffort] = {
    "fast": RecomputeEffort(
        play_work=25_000_000,
        state_work=100_000,
        run_work=100_000_000,
        solver_work=1_000_000,
        rounds=3,
        relative_gap=0.02,
        near_gap=0.1,
    ),
    "balanced": RecomputeEffort(
        play_work=300_000_000,
        state_work=1_000_000,
        run_work=600_000_000,
        solver_work=14_000_000,
        rounds=12,
        relative_gap=0.0095,
        near_gap=None,
    ),
    "max": RecomputeEffort(
        play_work=20_000_000_000,
        state_work=10_000_000,
        run_work=60_000_000_000,
        solver_work=1_000_000_000,
        rounds=60,
        relative_gap=0.0,
        near_gap=None,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingEffort:
    """Limits of one packing, in items looked at; some 10^9 a second."""

    priority_work: int
    """For the penalty loop, per part."""
    exact_work: int
    """For both exact searches, per part, over all heights tried."""
    exact_items: int
    """The largest part that exact search is tried on."""


PACKING_EFFORTS: dict[EffortName, PackingEffort] = {
    "fast": PackingEffort(priority_work=20_000_000, exact_work=60_000_000, exact_items=500),
    "balanced": PackingEffort(priority_work=500_000_000, exact_work=6_000_000_000, exact_items=2_000),
    "max": PackingEffort(priority_work=20_000_000_000, exact_work=240_000_000_000, exact_items=5_000),
}
