"""Time for memory: a plan within a budget that runs ops again or copies to the host, where no order alone fits."""

import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from lowtide.analysis.footprint import simulate
from lowtide.analysis.lower_bounds import LowerBound
from lowtide.analysis.problem import Problem
from lowtide.budget import Budget
from lowtide.costs import Prices
from lowtide.effort import EffortName
from lowtide.errors import UsageError
from lowtide.graph import Graph
from lowtide.offload import plan_within_budget as plan_with_offload
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
    means: AbstractSet[str],
    reorder: bool,
    in_place: bool,
    effort: EffortName,
    report: Callable[[str], None],
) -> Trade:
    """Return the cheapest plan found that fits the first memory space by the means "recompute" and "offload".

    What runs again is chosen first (`recompute.compose`); where "offload" is among the means, copies to the host are
    tried on the same base order, alone and together with reruns, and the least slow-down wins. `plan` is the best
    without either, made by the order `name`; its order is a base beside the given one where `reorder` is allowed.
    Infeasible is claimed where no order can fit, or none may be chosen; else a plan that does not fit is feasible, with
    the reason why.
    """
    problem = Problem(graph, plan.callees, in_place)
    most = limit.allowed[graph.spaces[0].name] or 0
    orders = [("given", problem.given_order())]
    if reorder and not np.array_equal(plan.order(), orders[0][1]):
        orders.append((name, plan.order()))
    if "recompute" in means:
        found = compose(problem, orders, most, cost=prices.seconds, reorder=reorder, effort=effort, progress=report)
        base, order, result = found.base, found.order, found.result
    else:
        (base, order), result = orders[-1], None
    if "offload" in means:
        report(f"choosing what goes to the host ({base})")
        allowed = means & {"recompute", "offload"}
        offloaded = plan_with_offload(problem, order, most, prices=prices, allow=allowed, effort=effort, alone=result)
        if result is None or offloaded.rank < result.rank:
            result = offloaded
    if result is None:
        raise UsageError("neither recompute nor offload is allowed; allow one of them")
    bounds = bounds_with_reruns(problem)
    return Trade(
        plan=result.plan,
        peak_bytes=simulate(graph, result.plan).peak_bytes,
        status=_status(result, bounds[0].peak_bytes > most, reorder),
        base_order=base,
        extra_cost=result.extra_cost,
        extra_cost_bound=result.extra_cost_bound if math.isfinite(result.extra_cost_bound) else None,
        bounds=bounds,
        shortfall=result.shortfall,
    )


def _status(result: RecomputeResult, impossible: bool, reorder: bool) -> Status:
    if result.fits:
        return "optimal" if result.status == "optimal" else "feasible"
    return "infeasible" if impossible or (result.status == "infeasible" and not reorder) else "feasible"
