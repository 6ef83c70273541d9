"""The record that the stages of planning pass on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import TypeAlias

from lowtide.core.progress import Report
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.analysis.budget import Budget, Shortfall
from lowtide.engine.analysis.lower_bounds import LowerBound
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.packing import Packing
from lowtide.engine.plan import Plan, Status, verify
from lowtide.engine.plan.claim import PlanClass
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.recompute.prove_cost import ProvableCost
from lowtide.engine.search import Proof, Searched

Keep: TypeAlias = Callable[[Graph, Plan], None]
"""Receives a verified plan and its graph."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """A plan between two stages."""

    graph: Graph
    settings: PlanSettings
    budget: Budget
    prices: Prices
    unmodified: Graph
    """The unmodified program; `graph` may be another form."""
    unmodified_peak_bytes: Mapping[str, int]
    """The peak that percentages refer to."""
    in_chunks: bool = False

    plan: Plan
    problem: Problem
    scheduler: str = "baseline"
    packing: Packing | None = None

    extra_cost: float = 0.0
    extra_cost_bound: float | None = 0.0
    solver_bound: float | None = None
    provable_cost: ProvableCost | None = None
    base_order: str | None = None
    """The order of first runs; None if it is the plan's own."""
    holds_for_any_order: bool = False
    """Whether the cost bound holds for all orders, not only the base order."""
    bounds: tuple[LowerBound, ...] = ()
    searched_peak: int = 0
    """The first space's bound if a search of all runs proved it, else 0."""
    proof: Proof | None = None
    """A proof that can be checked again, without logs of refuted budgets."""
    solved: Searched | None = None
    is_judged: bool = False
    is_optimal: bool = False
    shortfall: Shortfall | None = None
    keep: Keep | None = None
    interrupted: bool = False
    """Whether Ctrl-C ended the search; the remaining stages then finish quickly."""

    @property
    def status(self) -> Status:
        if self.interrupted:
            return "interrupted"
        if self.shortfall is not None:
            return "infeasible" if self.shortfall.is_impossible else "feasible"
        return "optimal" if self.is_optimal else "feasible"

    @property
    def bounds_hold_for(self) -> PlanClass:
        if self.proof is not None or not self.settings.techniques & NEED_BUDGET:
            return "orders"
        return "copies" if "offload" in self.settings.techniques else "reruns"

    @property
    def fits(self) -> bool:
        return self.budget.excess_bytes(self.plan.peak_bytes) == 0

    def is_beaten_by(self, plan: Plan) -> bool:
        """Return whether a plan exceeds the limits by less or, if neither does, has a lower peak."""
        return self.budget.rank(plan.peak_bytes) < self.budget.rank(self.plan.peak_bytes)

    def taking(self, plan: Plan, packing: Packing | None = None) -> "Draft":
        problem = Problem(self.graph, plan.callees, in_place=self.settings.takes_pairs)
        return replace(self, plan=plan, problem=problem, packing=packing)

    def offer(self, plan: Plan) -> None:
        """Pass a better plan to `keep`, verified and marked interrupted."""
        if self.keep is not None and (plan is self.plan or self.is_beaten_by(plan)):
            verify(self.graph, plan, check_capacity=False)
            self.keep(self.graph, replace(plan, status="interrupted"))


Stage = Callable[[Draft, Report], Draft]


def stage(work: Stage) -> Stage:
    """Let Ctrl-C end a stage early: it is repeated, marked interrupted. A second Ctrl-C ends planning."""

    @wraps(work)
    def resumed(draft: Draft, report: Report) -> Draft:
        try:
            return work(draft, report)
        except KeyboardInterrupt:
            if draft.interrupted:
                raise
            return work(replace(draft, interrupted=True), report)

    return resumed
