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
    """The limits of each memory space, from the budget and the capacities."""
    prices: Prices
    unmodified: Graph
    """The unmodified program; `graph` unless that is another form of it."""
    unmodified_peak_bytes: Mapping[str, int]
    """Peak of the unmodified program. Percentages refer to it."""
    in_chunks: bool = False

    plan: Plan
    """The best plan found, with its `peak_bytes`."""
    problem: Problem
    """The graph with the callees of this plan."""
    scheduler: str = "baseline"
    """The plan's order."""
    packing: Packing | None = None
    """The addresses of the plan's buffers, if a stage has placed them."""

    extra_cost: float = 0.0
    extra_cost_bound: float | None = 0.0
    solver_bound: float | None = None
    """The solver's unproven higher bound, or None."""
    provable_cost: ProvableCost | None = None
    """The extra cost's bound with its proof."""
    base_order: str | None = None
    """The order of first runs; None if it is the plan's own."""
    holds_for_any_order: bool = False
    """Whether the bound of the extra cost holds for all orders or only for the base order."""
    bounds: tuple[LowerBound, ...] = ()
    """Lower bounds of the peak per memory space; empty if nothing is proven yet."""
    searched_peak: int = 0
    """The first space's bound if a search of all runs proved it, else 0."""
    proof: Proof | None = None
    """The proof of the bounds, if it can be checked again; without the logs of refuted budgets."""
    solved: Searched | None = None
    """The search behind the proof, if any."""
    is_judged: bool = False
    """Whether `is_optimal` and `shortfall` are final."""
    is_optimal: bool = False
    """Whether no plan that the settings allow is better."""
    shortfall: Shortfall | None = None
    keep: Keep | None = None
    """Receives the best plan while a stage takes long."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search. The remaining stages then finish as quickly as possible."""

    @property
    def status(self) -> Status:
        """The outcome as in plan files, decided only here."""
        if self.interrupted:
            return "interrupted"
        if self.shortfall is not None:
            return "infeasible" if self.shortfall.is_impossible else "feasible"
        return "optimal" if self.is_optimal else "feasible"

    @property
    def bounds_hold_for(self) -> PlanClass:
        """The class of plans that the bounds hold for."""
        if self.proof is not None or not self.settings.techniques & NEED_BUDGET:
            return "orders"
        return "copies" if "offload" in self.settings.techniques else "reruns"

    @property
    def fits(self) -> bool:
        """Whether the plan is within all memory spaces' limits."""
        return self.budget.excess_bytes(self.plan.peak_bytes) == 0

    def is_beaten_by(self, plan: Plan) -> bool:
        """Return whether a plan with `peak_bytes` exceeds the limits by less or, if neither does, has a lower peak."""
        return self.budget.rank(plan.peak_bytes) < self.budget.rank(self.plan.peak_bytes)

    def taking(self, plan: Plan, packing: Packing | None = None) -> "Draft":
        """Return the draft with another plan that has its `peak_bytes`."""
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
