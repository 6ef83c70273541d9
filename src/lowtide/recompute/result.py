"""What planning within a budget gives."""

from dataclasses import dataclass
from typing import Literal

from lowtide.plan import Plan
from lowtide.recompute.floor import Floor
from lowtide.recompute.program import Cuts

Method = Literal["greedy", "exact"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecomputeResult:
    """A verified plan for a base order and a budget, its price, and how far the price is from the best possible."""

    plan: Plan
    """Never over the budget where `fits`; else the one of least peak that was found."""
    cuts: Cuts
    """What the best plan of cuts drops, to start another search from; the plan itself may be an even better one."""
    budget_bytes: int
    peak_bytes: int
    """Peak of the plan in the memory space the budget is for, persistent buffers left out."""
    fits: bool
    base_cost: float
    """Cost of running every op once, in the unit of the costs."""
    extra_cost: float
    """Cost of all that runs again."""
    extra_cost_bound: float
    """No plan within the budget costs less extra that runs the ops for the first time in the base order, and random,
    ordered and mutating ops once; infinite where none fits."""
    floor: Floor
    method: Method
    """"exact" where HiGHS took part, "greedy" without it."""
    work: int
    """Work of the solver."""
    places: tuple[int, ...]
    """The places in the base order whose memory the bound counts."""
    shortfall: str | None
    """Why the budget is not met, in one sentence; None when it is."""

    @property
    def rank(self) -> tuple[int, float, int]:
        """What results for one budget are compared by, less is better: bytes over it, extra cost, peak."""
        return max(0, self.peak_bytes - self.budget_bytes), self.extra_cost, self.peak_bytes

    @property
    def gap(self) -> float:
        """Extra cost above its bound, relative to the extra cost; 0 where it is proven least."""
        if not self.fits or self.extra_cost <= self.extra_cost_bound:
            return 0.0
        return (self.extra_cost - self.extra_cost_bound) / self.extra_cost

    @property
    def status(self) -> Literal["optimal", "feasible", "infeasible", "stopped_by_work"]:
        """Optimal when the cost meets its bound, infeasible when the bound proves that no plan fits, stopped_by_work
        when none was found, else feasible."""
        if self.extra_cost_bound == float("inf"):
            return "infeasible"
        if not self.fits:
            return "stopped_by_work"
        return "optimal" if self.extra_cost <= self.extra_cost_bound else "feasible"
