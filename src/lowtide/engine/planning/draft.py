"""The record that the stages of planning hand on: what is asked, the best plan so far, and what is known of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import TypeAlias

from lowtide.core.progress import Report
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.analysis.lower_bounds import LowerBound
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.analysis.shortfall import Shortfall
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.packing import Packing
from lowtide.engine.plan import Plan, Status, verify
from lowtide.engine.plan.claim import PlanClass
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.search import Proof, Searched

Keep: TypeAlias = Callable[[Graph, Plan], None]
"""Takes a verified plan, and the graph it is for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """A plan on its way through the stages."""

    graph: Graph
    settings: PlanSettings
    budget: Budget
    """What the settings' budget and the capacities leave to every memory space."""
    prices: Prices
    untouched_peak_bytes: Mapping[str, int]
    """Peak of the program as it stands, which percentages are of."""
    in_chunks: bool = False
    """Whether the graph is the program in chunks, rather than the one as it stands."""

    plan: Plan
    """The best so far; its `peak_bytes` are set."""
    problem: Problem
    """The graph with the callees of that plan."""
    scheduler: str = "baseline"
    """The order of the plan, by name."""
    packing: Packing | None = None
    """Where the plan's buffers lie, once somebody placed them."""

    extra_cost: float = 0.0
    extra_cost_bound: float | None = 0.0
    base_order: str | None = None
    """The order of first runs by name; None where it is the plan's own."""
    is_of_any_order: bool = False
    """Whether the bound of the extra cost holds for all orders, rather than for the base order alone."""
    bounds: tuple[LowerBound, ...] = ()
    """Per memory space, what no plan can beat; empty as long as nothing is proven."""
    searched_peak: int = 0
    """The bound of the first space where a search of all runs showed it, else 0."""
    proof: Proof | None = None
    """What shows that the bounds hold, where it can be checked again; without logs of what a search refuted."""
    solved: Searched | None = None
    """The search that the proof is of, where one was done."""
    is_judged: bool = False
    """Whether a stage has compared the plan with its bounds: `is_optimal` and `shortfall` are final."""
    is_optimal: bool = False
    """Whether no plan that the settings allow is better."""
    shortfall: Shortfall | None = None
    """Why the budget is missed; None if it is met."""
    keep: Keep | None = None
    """Where the best plan so far goes while a stage takes long."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search: what is left is done as quickly as can be."""

    @property
    def status(self) -> Status:
        """The outcome as plan files name it. This is the only place where it is decided."""
        if self.interrupted:
            return "interrupted"
        if self.shortfall is not None:
            return "infeasible" if self.shortfall.is_impossible else "feasible"
        return "optimal" if self.is_optimal else "feasible"

    @property
    def bounds_hold_for(self) -> PlanClass:
        """The class of plans that the bounds are of: as wide as the techniques, and as what was shown, allow."""
        if self.proof is not None or not self.settings.techniques & NEED_BUDGET:
            return "orders"
        return "copies" if "offload" in self.settings.techniques else "reruns"

    @property
    def fits(self) -> bool:
        """Whether the plan stays within the budget in every memory space."""
        return self.budget.excess_bytes(self.plan.peak_bytes) == 0

    def is_beaten_by(self, plan: Plan) -> bool:
        """Return whether a plan with its `peak_bytes` set needs less: first of what is over the budget, then of all."""
        return self.budget.rank(plan.peak_bytes) < self.budget.rank(self.plan.peak_bytes)

    def taking(self, plan: Plan, packing: Packing | None = None) -> "Draft":
        """Return the draft with another plan, whose `peak_bytes` are set."""
        problem = Problem(self.graph, plan.callees, in_place=self.settings.takes_pairs)
        return replace(self, plan=plan, problem=problem, packing=packing)

    def keep_so_far(self, plan: Plan) -> None:
        """Hand a plan to whoever keeps the best so far, verified and marked interrupted, where it beats the draft's."""
        if self.keep is not None and (plan is self.plan or self.is_beaten_by(plan)):
            verify(self.graph, plan, check_capacity=False)
            self.keep(self.graph, replace(plan, status="interrupted"))


Stage = Callable[[Draft, Report], Draft]


def stage(work: Stage) -> Stage:
    """Let Ctrl-C end a stage early: it is done again, marked interrupted. Pressed again, it ends planning."""

    @wraps(work)
    def resumed(draft: Draft, report: Report) -> Draft:
        try:
            return work(draft, report)
        except KeyboardInterrupt:
            if draft.interrupted:
                raise
            return work(replace(draft, interrupted=True), report)

    return resumed
