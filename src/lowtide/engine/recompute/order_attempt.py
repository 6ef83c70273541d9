"""The search from one base order."""

from dataclasses import dataclass, replace

import numpy as np

from lowtide.core.effort import SEARCH_EFFORTS, EffortName
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.recompute.best_plan import BestPlan
from lowtide.engine.recompute.budget_search import BudgetSearch
from lowtide.engine.recompute.program import Ints
from lowtide.engine.recompute.unrolled import unroll
from lowtide.engine.search import solve

_FIT_WORK_DIVISOR = 5
"""Recomputed programs are reordered often, and the exact search rarely improves what cuts find."""


@dataclass(slots=True, eq=False)
class OrderAttempt:
    """A base order's search, with its best plan."""

    name: str
    base: str
    """The name before reorderings."""
    search: BudgetSearch
    found: BestPlan

    @property
    def rank(self) -> tuple[int, float, int]:
        return self.found.rank(self.found.execution)

    @property
    def cost(self) -> float:
        return self.found.cost

    @property
    def first_cost(self) -> float:
        over, cost, _ = self.found.first_rank
        return float("inf") if over else cost

    def begins_like(self, other: "OrderAttempt") -> bool:
        """Return whether bounds and fast plans agree."""
        return (self.found.bound, self.found.first_rank) == (other.found.bound, other.found.first_rank)

    def is_near(self, best: tuple[int, float, int], factor: float) -> bool:
        """Return whether more work may make this the cheapest plan."""
        return best[0] > 0 or self.cost <= factor * best[1]

    def may_fit_below(self, cost: float) -> bool:
        """Return whether the plan misses the budget, but one at `cost` may fit."""
        found = self.found
        return not found.fits and max(found.execution.extra_cost, found.steering_bound) <= cost

    @property
    def is_done(self) -> bool:
        return self.cost == 0 or self.found.layers_suffice

    def runs_in_better_order(self, effort: EffortName, budget: int) -> Ints:
        problem = self.search.program.problem
        unrolled = unroll(problem, self.found.execution.runs.tolist())
        inner = Problem(unrolled.graph, in_place=problem.in_place)
        within = Budget.of_limits(problem.graph, [budget, *(None for _ in problem.graph.spaces[1:])])
        limits = SEARCH_EFFORTS[effort]
        if effort != "max":
            limits = replace(limits, fit_work=limits.fit_work // _FIT_WORK_DIVISOR)
        solution = solve(inner, [inner.given_order()], limits, budget=within)
        return np.asarray(unrolled.runs(solution.order), np.int32)
