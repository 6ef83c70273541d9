"""The frontier between memory and time: plans for several budgets that learn from one another, and the knee."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.analysis.problem import Order, Problem
from lowtide.effort import DEFAULT_EFFORT, RECOMPUTE_EFFORTS, EffortName
from lowtide.errors import UsageError
from lowtide.index_spaces import SpaceId
from lowtide.plan import verify
from lowtide.recompute.budget_search import BudgetSearch
from lowtide.recompute.program import Program
from lowtide.recompute.result import RecomputeResult, explain_shortfall
from lowtide.recompute.within_budget import checked_cost

FEWEST, MOST = 2, 50
_DEFAULT_POINTS = 7


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Results from the largest budget to the smallest: peaks never rise and extra costs never fall along them."""

    points: tuple[RecomputeResult, ...]
    knee: int | None
    """The point to take without a reason for another: beyond it, a byte saved costs more than before it. It is the one
    farthest below the line from the first to the last point that fits, with both axes scaled to that line; None if
    fewer than three fit."""


def plan_curve(
    problem: Problem,
    order: Order,
    budgets: Sequence[int] | None = None,
    *,
    cost: NDArray[np.float64] | None = None,
    space: SpaceId = 0,
    effort: EffortName = DEFAULT_EFFORT,
    exact: bool = True,
) -> Curve:
    """Plan one base order for several budgets, by default seven from its peak down to the floor, evenly spaced.

    Budgets are bytes as in `plan_within_budget`, in any order. The search for each starts from the plan for the next
    larger budget. A plan for a smaller budget is a candidate for every larger one, and a bound for a larger budget
    holds for every smaller one.
    Raises UsageError for fewer than 2 or more than 50 budgets, and as `plan_within_budget` does.
    """
    program = Program(problem, order, checked_cost(problem, cost), space)
    search = BudgetSearch(program)
    if budgets is None:
        most, least = search.untouched.peak_bytes, search.floor.peak_bytes
        budgets = [most - (most - least) * k // (_DEFAULT_POINTS - 1) for k in range(_DEFAULT_POINTS)]
    if not FEWEST <= len(budgets) <= MOST:
        raise UsageError(f"a curve of {len(budgets)} budgets was asked for; give {FEWEST} to {MOST}")
    found: list[RecomputeResult] = []
    for budget in sorted(set(budgets), reverse=True):
        start, runs = ([found[-1].drops], [found[-1].plan.order()]) if found else ([], [])
        found.append(search.plan(budget, RECOMPUTE_EFFORTS[effort], exact=exact, start=start, runs=runs))
    points = _share_plans(search, _share_bounds(found))
    for plan in {id(point.plan): point.plan for point in points}.values():
        verify(problem.graph, plan, check_capacity=False)
    return Curve(tuple(points), _knee(points))


def _share_bounds(found: Sequence[RecomputeResult]) -> list[RecomputeResult]:
    """Raise every bound to those of larger budgets, which come first."""
    highest, raised = 0.0, list[RecomputeResult]()
    for result in found:
        highest = max(highest, result.extra_cost_bound)
        raised.append(replace(result, extra_cost_bound=highest))
    return raised


def _share_plans(search: BudgetSearch, found: Sequence[RecomputeResult]) -> list[RecomputeResult]:
    """Give every budget the cheapest plan found for any of them that fits; the one of least peak where none does."""
    points: list[RecomputeResult] = []
    for result in found:
        budget = result.budget_bytes
        best = min(
            found,
            key=lambda other: (max(0, other.peak_bytes - budget), other.extra_cost, other.peak_bytes),
        )
        point = replace(
            result,
            plan=best.plan,
            drops=best.drops,
            peak_bytes=best.peak_bytes,
            fits=best.peak_bytes <= budget,
            extra_cost=best.extra_cost,
            extra_cost_bound=min(result.extra_cost_bound, best.extra_cost)
            if best.peak_bytes <= budget
            else result.extra_cost_bound,
            shortfall=None,
        )
        if not point.fits:
            shortfall = explain_shortfall(search.program, search.floor, budget, best.peak_bytes, point.extra_cost_bound)
            point = replace(point, shortfall=shortfall)
        points.append(point)
    return points


def _knee(points: Sequence[RecomputeResult]) -> int | None:
    fitting = [k for k, point in enumerate(points) if point.fits]
    if len(fitting) < 3:
        return None
    first, last = points[fitting[0]], points[fitting[-1]]
    bytes_saved, cost_added = first.peak_bytes - last.peak_bytes, last.extra_cost - first.extra_cost
    if not bytes_saved or not cost_added:
        return fitting[0] if not bytes_saved else fitting[-1]

    def below(k: int) -> float:
        saved = (first.peak_bytes - points[k].peak_bytes) / bytes_saved
        return saved - (points[k].extra_cost - first.extra_cost) / cost_added

    return max(fitting, key=lambda k: (below(k), -k))
