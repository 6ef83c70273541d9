"""Order and choice together: what runs again depends on the order, and the best order on what runs again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.analysis.budget import Budget
from lowtide.analysis.problem import Order, Problem
from lowtide.effort import DEFAULT_EFFORT, RECOMPUTE_EFFORTS, SEARCH_EFFORTS, EffortName
from lowtide.index_spaces import SpaceId
from lowtide.progress import Report, silent
from lowtide.recompute.all_runs import AllRuns, search_all_runs
from lowtide.recompute.budget_search import BudgetSearch
from lowtide.recompute.found import Found
from lowtide.recompute.program import Drops, Ints, Program
from lowtide.recompute.result import RecomputeResult
from lowtide.recompute.unrolled import first_runs, unroll
from lowtide.recompute.within_budget import checked_cost
from lowtide.search import solve

_MOST_TURNS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Composed:
    """The cheapest plan over several base orders."""

    result: RecomputeResult
    """Its bounds hold for the base order, or for any."""
    base: str
    """What the base order is called: as it was given, with "+ rerun order" for every time it was ordered anew."""
    order: Order


def compose(
    problem: Problem,
    orders: Sequence[tuple[str, Order]],
    budget_bytes: int,
    *,
    cost: NDArray[np.float64] | None = None,
    space: SpaceId = 0,
    reorder: bool = True,
    effort: EffortName = DEFAULT_EFFORT,
    progress: Report | None = None,
) -> Composed:
    """Return the cheapest plan within a budget; larger graphs start from one of the named base orders.

    Small graphs are searched exactly, over all orders and any number of reruns (`all_runs`). For all others, and where
    that stops, greedy choice compares the orders; the best one goes through the exact part. Then the plan's runs become
    a graph in which reruns are ordinary ops, and the order search orders that graph. Its order of first runs is the
    next base, as long as that lowers what greedy choice costs and then the cost. Without `reorder`, first runs keep the
    order they are given. Deterministic; never worse than any of the given orders under greedy choice. The plan is not
    verified: that is for whoever completes it.
    """
    report = progress or silent
    costs = checked_cost(problem, cost)
    searched = AllRuns()
    if reorder:
        report("searching all runs")
        peak = min(int(problem.evaluate(order).peaks[space]) for _, order in orders)
        work = RECOMPUTE_EFFORTS[effort].state_work
        searched = search_all_runs(problem, costs, budget_bytes, peak, space=space, max_work=work)
    known = [_of_any_order(problem, searched.runs, budget_bytes, costs, space)] if searched.runs is not None else []
    if not (known and searched.is_settled):
        known.append(_over_base_orders(problem, orders, budget_bytes, costs, space, reorder, effort, report))
    return _bounded(min(known, key=lambda found: found.result.rank), searched)


def _of_any_order(problem: Problem, runs: Ints, budget: int, cost: NDArray[np.float64], space: SpaceId) -> Composed:
    """Return the plan of runs that a search of all runs found."""
    order = first_runs(runs.tolist())
    program = Program(problem, order, cost, space)
    search = BudgetSearch(program)
    found = Found(budget, Drops(), search.untouched)
    found.offer(program.replay(runs))
    return Composed(search.result(found, exact=True), "exact search", order)


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


def _over_base_orders(
    problem: Problem,
    orders: Sequence[tuple[str, Order]],
    budget_bytes: int,
    cost: NDArray[np.float64],
    space: SpaceId,
    reorder: bool,
    effort: EffortName,
    report: Report,
) -> Composed:
    """Return the cheapest plan that starts from one of the base orders, with bounds for its own order."""
    compared: list[Composed] = []
    for name, order in orders:
        report(f"choosing what runs again ({name})")
        compared.append(Composed(_plan(problem, order, budget_bytes, cost, space, effort, exact=False), name, order))
    best = quickest = min(compared, key=lambda found: found.result.rank)
    if best.result.fits and best.result.extra_cost == 0:
        return best
    report(f"closing the gap ({best.base})")
    best = _better(best, Composed(_plan(problem, best.order, budget_bytes, cost, space, effort), best.base, best.order))
    again: EffortName = "max" if effort == "max" else "fast"  # further turns seldom pay for as much work as the first
    for _ in range(_MOST_TURNS if reorder else 0):
        report("ordering what runs again")
        order = _reordered(problem, best, again, space, budget_bytes)
        if np.array_equal(order, best.order):
            break
        name = f"{best.base} + rerun order"
        quick = Composed(_plan(problem, order, budget_bytes, cost, space, effort, exact=False), name, order)
        if quick.result.rank >= quickest.result.rank:
            break
        quickest = quick
        found = _better(quick, Composed(_plan(problem, order, budget_bytes, cost, space, again), name, order))
        if found.result.rank >= best.result.rank:
            break
        best = found
    return best


def _plan(
    problem: Problem,
    order: Order,
    budget: int,
    cost: NDArray[np.float64],
    space: SpaceId,
    effort: EffortName,
    *,
    exact: bool = True,
) -> RecomputeResult:
    program = Program(problem, order, cost, space)
    return BudgetSearch(program).plan(budget, RECOMPUTE_EFFORTS[effort], exact=exact)


def _better(one: Composed, other: Composed) -> Composed:
    """Return the better plan; of equals the one with the higher bound."""
    if one.result.rank != other.result.rank:
        return min(one, other, key=lambda found: found.result.rank)
    return max(one, other, key=lambda found: found.result.extra_cost_bound)


def _reordered(problem: Problem, found: Composed, effort: EffortName, space: SpaceId, budget: int) -> Order:
    """Return the order of first runs after the plan's runs were put into the best order."""
    unrolled = unroll(problem, found.result.plan.order().tolist())
    inner = Problem(unrolled.graph, in_place=problem.in_place)
    limits = [budget if number == space else None for number in range(len(problem.graph.spaces))]
    within = Budget.of_limits(problem.graph, limits)
    solution = solve(inner, [inner.given_order()], SEARCH_EFFORTS[effort], budget=within)
    return first_runs(unrolled.runs(solution.order))
