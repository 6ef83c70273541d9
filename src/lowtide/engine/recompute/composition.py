"""Choose the order and the recomputed ops together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import RecomputeEffort
from lowtide.core.progress import Report, silent
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.plan import Plan
from lowtide.engine.recompute.best_plan import BestPlan
from lowtide.engine.recompute.budget_search import BudgetSearch
from lowtide.engine.recompute.exact_search import ExactResult, search_exactly
from lowtide.engine.recompute.fewer_layers import with_fewer_layers
from lowtide.engine.recompute.order_search import QUICK_ROUTE, Composed, ComposeSettings, OrderSearch, Route
from lowtide.engine.recompute.program import Drops, Ints, OrderedProgram, checked_cost
from lowtide.engine.recompute.unrolled import first_runs

_MANY_OPS = 4_000
"""Programs of this many ops are first planned with few layers."""
_FEW_LAYERS = 6
_MAX_SHARE = 0.4
_NEAR_EXPECTED = 1.04


def compose(
    problem: Problem,
    orders: Sequence[tuple[str, Order]],
    budget_bytes: int,
    settings: ComposeSettings | None = None,
    *,
    progress: Report | None = None,
    keep: Callable[[Plan], None] | None = None,
) -> Composed:
    """Return the cheapest plan within a budget of the first memory space.

    Small graphs are searched exactly over all orders. Otherwise, or if that stops early, the best of the named base
    orders is improved, and `keep` receives each better plan. Deterministic. Plans are unverified.
    """
    settings, report = settings or ComposeSettings(), progress or silent
    costs = checked_cost(problem, settings.cost)
    searched = ExactResult()
    if settings.reorder and settings.exact:
        report("searching all orders and recomputations exactly")
        peak = min(int(problem.evaluate(order).peaks[0]) for _, order in orders)
        work = settings.limits.state_work
        searched = search_exactly(problem, costs, budget_bytes, peak, max_work=work)
    known = (
        [_exact_plan(problem, searched.runs, budget_bytes, costs, settings.limits)] if searched.runs is not None else []
    )
    if not (known and searched.is_exact):
        known.append(_Planning(problem, orders, budget_bytes, costs, settings, report, keep).cheapest())
    return _with_exact_bounds(min(known, key=lambda found: found.result.rank), searched)


@dataclass(frozen=True, slots=True, eq=False)
class _Planning:
    problem: Problem
    orders: Sequence[tuple[str, Order]]
    budget: int
    cost: NDArray[np.float64]
    settings: ComposeSettings
    report: Report
    keep: Callable[[Plan], None] | None

    def cheapest(self) -> Composed:
        """Return the cheapest plan found.

        A few of many equal layers are planned first, to find the useful base order and searches for the whole program.
        """
        search = OrderSearch(self.problem, self.budget, self.cost, self.settings, self.report, self.keep)
        known: list[Composed] = []
        if not (self._is_small or search.is_done_by(self.orders[0])):
            self.report("planning a few layers")
            found = self._with_few_layers()
            if found is not None:
                route, expected = found
                planned, _ = search.plan(self.orders, route)
                if planned.result.fits and planned.result.extra_cost <= _NEAR_EXPECTED * expected:
                    return planned
                known.append(planned)
        known.append(search.plan(self.orders)[0])
        return min(known, key=lambda each: each.result.rank)

    @property
    def _is_small(self) -> bool:
        return self.problem.graph.n_ops < _MANY_OPS or self.settings.proves or not self.orders

    def _with_few_layers(self) -> tuple[Route, float] | None:
        """Return the useful route, and the extra cost expected for all layers."""
        fewer = with_fewer_layers(self.problem, _FEW_LAYERS)
        if fewer is None or fewer.problem.graph.n_ops > _MAX_SHARE * self.problem.graph.n_ops:
            return None
        budget = fewer.budget(self.problem, self.budget)
        if budget is None:
            return None
        orders = [(name, fewer.order(order)) for name, order in self.orders]
        search = OrderSearch(fewer.problem, budget, self.cost[fewer.ops], self.settings, silent, None)
        planned, useful = search.plan(orders, QUICK_ROUTE)
        if not planned.result.fits:
            return None
        return useful, planned.result.extra_cost * fewer.all_layers / fewer.layers


def _exact_plan(
    problem: Problem, runs: Ints, budget: int, cost: NDArray[np.float64], limits: RecomputeEffort
) -> Composed:
    order = first_runs(runs.tolist())
    program = OrderedProgram(problem, order, cost)
    search = BudgetSearch(program)
    found = BestPlan(budget, Drops(), search.baseline)
    found.offer(program.replay(runs))
    return Composed(search.result(found, limits, exact=True), "exact search", order, problem)


def _with_exact_bounds(best: Composed, searched: ExactResult) -> Composed:
    result = best.result
    bound = searched.cost_bound
    if result.fits and (searched.is_exact or bound >= result.extra_cost):
        bound = result.extra_cost
    elif bound < float("inf"):
        return best
    known = replace(
        result,
        extra_cost_bound=bound,
        solver_bound=None,
        provable_cost=None,
        peak_bound=searched.peak_bound,
        holds_for_any_order=True,
    )
    return replace(best, result=known)
