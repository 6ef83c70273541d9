"""Work limits of the searches by effort.

Work is counted, not timed, so that results are equal on every machine.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

from lowtide.core.errors import UsageError, unknown

Effort = TypeVar("Effort")
EffortName = Literal["fast", "balanced", "max"]
EFFORT_NAMES: tuple[EffortName, ...] = get_args(EffortName)
DEFAULT_EFFORT: EffortName = "balanced"


def check_effort(name: str) -> None:
    if name not in EFFORT_NAMES:
        raise UsageError(unknown("effort", name, EFFORT_NAMES))


def _by_effort(kind: Callable[..., Effort], **limits: tuple[float | None, ...]) -> dict[EffortName, Effort]:
    levels = zip(EFFORT_NAMES, zip(*limits.values(), strict=True), strict=True)
    return {name: kind(**dict(zip(limits, values, strict=True))) for name, values in levels}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEffort:
    """Work limits of an order search, in flow arcs and ready ops: 10^9 per second."""

    cut_work: int
    fit_work: int
    """For the exact search, over all budgets."""
    fit_ops: int


SEARCH_EFFORTS = _by_effort(
    SearchEffort,
    cut_work=(50_000_000, 500_000_000, 5_000_000_000),
    fit_work=(50_000_000, 8_000_000_000, 200_000_000_000),
    fit_ops=(5_000, 100_000, 200_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeEffort:
    """Work limits of recomputation or offload for one budget."""

    play_work: int
    """Accesses simulated for plans of drops: 10^8 per second, more while no plan fits."""
    state_work: int
    """Steps tried by the exact search over runs: 10^6 per second."""
    run_work: int
    """Accesses and arcs visited for plans of runs: 3 * 10^8 per second. May be spent twice."""
    demand_work: int
    """Accesses visited for the plan of lowest peak if none fits; 4 times as many if single ops fit."""
    solver_work: int
    """As in `recompute.solver.Solved`: 700,000 per second."""
    rounds: int
    certify_share: float
    """Work on proving the solver's bounds, relative to its work."""
    relative_gap: float
    """The search ends with the extra cost this close to its bound."""

    def part(self, parts: int) -> "RecomputeEffort":
        """Return the limits of one of several searches, with the full solver work."""
        names = ("play_work", "state_work", "run_work", "demand_work")
        return replace(self, **{name: getattr(self, name) // parts for name in names})

    def for_proof(self) -> "RecomputeEffort":
        """Return limits at which the solver closes most gaps between cost and bound."""
        work, rounds = max(self.solver_work, _PROOF_WORK), max(self.rounds, _PROOF_ROUNDS)
        return replace(self, solver_work=work, rounds=rounds, certify_share=_PROOF_SHARE)


_PROOF_WORK = 14_000_000
_PROOF_ROUNDS = 12
_PROOF_SHARE = 2.0

RECOMPUTE_EFFORTS = _by_effort(
    RecomputeEffort,
    play_work=(25_000_000, 300_000_000, 20_000_000_000),
    state_work=(100_000, 1_000_000, 10_000_000),
    run_work=(100_000_000, 250_000_000, 60_000_000_000),
    demand_work=(25_000_000, 150_000_000, 15_000_000_000),
    solver_work=(1_000_000, 1_000_000, 1_000_000_000),
    rounds=(3, 3, 60),
    certify_share=(0.1, 0.1, _PROOF_SHARE),
    relative_gap=(0.02, 0.0095, 0.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingEffort:
    """Work limits of one packing, in items: 10^9 per second."""

    priority_work: int
    """For the penalty loop, per part."""
    exact_work: int
    """For both exact searches, per part."""
    exact_items: int


PACKING_EFFORTS = _by_effort(
    PackingEffort,
    priority_work=(20_000_000, 500_000_000, 20_000_000_000),
    exact_work=(60_000_000, 6_000_000_000, 240_000_000_000),
    exact_items=(500, 2_000, 5_000),
)
