"""Order and choice together: what runs again depends on the order, and the best order on what runs again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import DEFAULT_EFFORT, RECOMPUTE_EFFORTS, EffortName
from lowtide.core.index_spaces import SpaceId
from lowtide.core.progress import Report, silent
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.plan import Plan
from lowtide.engine.recompute.all_runs import AllRuns, search_all_runs
from lowtide.engine.recompute.base_orders import plan_over_base_orders
from lowtide.engine.recompute.budget_search import BudgetSearch
from lowtide.engine.recompute.found import Found
from lowtide.engine.recompute.program import Drops, Ints, Program
from lowtide.engine.recompute.result import RecomputeResult
from lowtide.engine.recompute.unrolled import first_runs
from lowtide.engine.recompute.within_budget import checked_cost


@dataclass(frozen=True, slots=True, eq=False)
class Composed:
    """The cheapest plan over several base orders."""

    result: RecomputeResult
    """Its bounds hold for the base order, or for any."""
    base: str
    """What the base order is called: as it was given, with "+ rerun order" for every time it was ordered anew."""
    order: Order
    problem: Problem


def compose(
    problem: Problem,
    orders: Sequence[tuple[str, Order]],
    budget_bytes: int,
    *,
    cost: NDArray[np.float64] | None = None,
    space: SpaceId = 0,
    reorder: bool = True,
    effort: EffortName = DEFAULT_EFFORT,
    exact: bool = True,
    progress: Report | None = None,
    keep: Callable[[Plan], None] | None = None,
    negligible: float = 0.0,
) -> Composed:
    """Return the cheapest plan within a budget; larger graphs start from one of the named base orders.

    Small graphs are searched exactly, over all orders and any number of reruns (`all_runs`). For all others, and where
    that stops, the base orders are compared and the best one is improved (`base_orders`). Without `reorder`, first runs
    keep the order they are given; without `exact`, neither exact search nor the solver takes part.
    Of a larger graph, `keep` is handed every plan that is better than the ones before, and one that costs at most
    `negligible` above its bound is good enough, as a share of the time of running every op once.
    Deterministic; plans are not verified: that is for whoever completes them.
    """
    report = progress or silent
    costs = checked_cost(problem, cost)
    searched = AllRuns()
    if reorder and exact:
        report("searching all runs")
        peak = min(int(problem.evaluate(order).peaks[space]) for _, order in orders)
        work = RECOMPUTE_EFFORTS[effort].state_work
        searched = search_all_runs(problem, costs, budget_bytes, peak, space=space, max_work=work)
    known = [_of_any_order(problem, searched.runs, budget_bytes, costs, space)] if searched.runs is not None else []
    if not (known and searched.is_settled):
        result, name, order = plan_over_base_orders(
            problem,
            orders,
            budget_bytes,
            costs,
            space=space,
            reorder=reorder,
            effort=effort,
            exact=exact,
            report=report,
            keep=keep,
            negligible=negligible,
        )
        known.append(Composed(result, name, order, problem))
    return _bounded(min(known, key=lambda found: found.result.rank), searched)


def _of_any_order(problem: Problem, runs: Ints, budget: int, cost: NDArray[np.float64], space: SpaceId) -> Composed:
    """Return the plan of runs that a search of all runs found."""
    order = first_runs(runs.tolist())
    program = Program(problem, order, cost, space)
    search = BudgetSearch(program)
    found = Found(budget, Drops(), search.untouched)
    found.offer(program.replay(runs))
    return Composed(search.result(found, exact=True), "exact search", order, problem)


def _bounded(best: Composed, searched: AllRuns) -> Composed:
    """Return a plan with what is known of all orders, where that says as much as what is known of its own order."""
    result = best.result
    bound = searched.cost_bound
    if result.fits and (searched.is_settled or bound >= result.extra_cost):
        bound = result.extra_cost
    elif bound < float("inf"):
        return best
    known = replace(result, extra_cost_bound=bound, peak_bound=searched.peak_bound, is_of_any_order=True)
    return replace(best, result=known)
