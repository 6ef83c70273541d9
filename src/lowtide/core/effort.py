"""Effort levels: work limits of every search.

Work is counted, not timed, so that results are the same on every machine.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from lowtide.core.errors import UsageError, unknown

EffortName = Literal["fast", "balanced", "max"]
EFFORT_NAMES: tuple[EffortName, ...] = get_args(EffortName)
"""From least to most work."""
DEFAULT_EFFORT: EffortName = "balanced"


def check_effort(name: str) -> None:
    """Raise UsageError for an unknown effort."""
    if name not in EFFORT_NAMES:
        raise UsageError(unknown("effort", name, EFFORT_NAMES))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEffort:
    """Work limits of a search for an order, in flow arcs and ready ops: 10^9 per second."""

    cut_work: int
    fit_work: int
    """For the exact search, over all budgets."""
    fit_ops: int


SEARCH_EFFORTS: dict[EffortName, SearchEffort] = {
    "fast": SearchEffort(cut_work=50_000_000, fit_work=50_000_000, fit_ops=5_000),
    "balanced": SearchEffort(cut_work=500_000_000, fit_work=8_000_000_000, fit_ops=100_000),
    "max": SearchEffort(cut_work=5_000_000_000, fit_work=200_000_000_000, fit_ops=200_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeEffort:
    """Work limits of recomputation or offload for one budget."""

    play_work: int
    """Accesses simulated for plans of drops: 10^8 per second, more while no plan fits."""
    state_work: int
    """Steps tried by the exact search over runs: 10^6 per second."""
    run_work: int
    """Accesses and arcs visited for plans of runs: 3 * 10^8 per second.

    Spent if plans of drops are far from their bound, and again if the solver leaves a gap."""
    solver_work: int
    """As in `recompute.solver.Solved`: 700,000 per second."""
    rounds: int
    """Calls of the solver."""
    relative_gap: float
    """The search ends when the extra cost is this close to its bound."""
    near_gap: float | None
    """If this close, the solver gets half of its work for the last base order, and more expensive orders are skipped.
    """

    def part(self, parts: int) -> "RecomputeEffort":
        """Return the limits of one of `parts` searches, with the full solver work."""
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
    """Work limits of one packing, in items: 10^9 per second."""

    priority_work: int
    """For the penalty loop, per part."""
    exact_work: int
    """For both exact searches, per part."""
    exact_items: int


PACKING_EFFORTS: dict[EffortName, PackingEffort] = {
    "fast": PackingEffort(priority_work=20_000_000, exact_work=60_000_000, exact_items=500),
    "balanced": PackingEffort(priority_work=500_000_000, exact_work=6_000_000_000, exact_items=2_000),
    "max": PackingEffort(priority_work=20_000_000_000, exact_work=240_000_000_000, exact_items=5_000),
}
