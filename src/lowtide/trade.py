"""Time for memory: a plan within a budget that runs ops again, where no order alone fits."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lowtide.analysis.footprint import simulate
from lowtide.analysis.lower_bounds import LowerBound
from lowtide.analysis.problem import Problem
from lowtide.budget import Budget
from lowtide.costs import Prices
from lowtide.effort import EffortName
from lowtide.graph import Graph
from lowtide.plan import Plan, Status
from lowtide.recompute import compose, least_possible
from lowtide.recompute.result import RecomputeResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """What a budget costs."""

    plan: Plan
    peak_bytes: Mapping[str, int]
    status: Status
    base_order: str
    """The order of first runs that the cost bound holds for, by name."""
    extra_cost: float
    extra_cost_bound: float | None
    """None where no plan fits with this base order."""
    bounds: tuple[LowerBound, ...]
    """What no plan can beat, whatever its order and whatever runs again."""
    shortfall: str | None


def bounds_with_reruns(problem: Problem) -> tuple[LowerBound, ...]:
    """Return, per memory space, what no plan can beat, in any order and whatever runs again."""
    return tuple(least_possible(problem, space) for space in range(len(problem.graph.spaces)))


def trade_time(
    graph: Graph,
    plan: Plan,
    name: str,
    limit: Budget,
    prices: Prices,
    *,
    reorder: bool,
    in_place: bool,
    effort: EffortName,
    report: Callable[[str], None],
) -> Trade:
    """Return the cheapest plan found that fits the first memory space by running ops again; see `recompute.compose`.

    `plan` is the best without reruns, made by the order `name`; its order is a base beside the given one where
    `reorder` is allowed. Infeasible is claimed where no order can fit, or none may be chosen; else a plan that does not
    fit is feasible, with the reason why.
    """
    problem = Problem(graph, plan.callees, in_place)
    most = limit.allowed[graph.spaces[0].name] or 0
    orders = [("given", problem.given_order())]
    if reorder and not np.array_equal(plan.order(), orders[0][1]):
        orders.append((name, plan.order()))
    found = compose(problem, orders, most, cost=prices.seconds, effort=effort, progress=report)
    bounds = bounds_with_reruns(problem)
    return Trade(
        plan=found.result.plan,
        peak_bytes=simulate(graph, found.result.plan).peak_bytes,
        status=_status(found.result, bounds[0].peak_bytes > most, reorder),
        base_order=found.base,
        extra_cost=found.result.extra_cost,
        extra_cost_bound=found.result.extra_cost_bound if math.isfinite(found.result.extra_cost_bound) else None,
        bounds=bounds,
        shortfall=found.result.shortfall,
    )


def _status(result: RecomputeResult, impossible: bool, reorder: bool) -> Status:
    if result.fits:
        return "optimal" if result.status == "optimal" else "feasible"
    return "infeasible" if impossible or (result.status == "infeasible" and not reorder) else "feasible"
