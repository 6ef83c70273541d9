"""An offer of recomputation after planning an order."""

import math
import shlex
from dataclasses import dataclass, replace

from lowtide.core.progress import Report, current_report
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.costs import Prices, carries_costs, price
from lowtide.engine.graph import Graph
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.recompute import plan_curve
from lowtide.engine.recompute.floor import floor_of
from lowtide.engine.recompute.program import OrderedProgram

MOST_OPS = 5_000
"""Larger graphs get no offer: it would take longer than planning the order."""
_LITTLE_TIME = 0.01
"""Share of run time always worth a lower peak."""
_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTechnique:
    """A verified plan with recomputation, as an offer."""

    space: str
    peak_bytes: int
    extra_cost: float
    base_cost: float
    costs: str
    """The profile that priced the ops."""
    budget: str
    """The budget to ask for."""
    fits: bool = False
    """Whether this plan meets the budget that the result misses."""

    @property
    def settings(self) -> str:
        """Options of `lowtide plan` and `lowtide optimize` for this plan."""
        return f"--budget {self.budget} --allow reorder,share,recompute --costs {self.costs}"


def next_technique(
    graph: Graph, result: Result, settings: PlanSettings, progress: Report | None = None
) -> NextTechnique | None:
    """Return the plan that recomputation would add to a result; None if it was allowed already or does not help.

    Of three budgets between the result's peak and its floor, offers the lowest that costs at most 1 % more time, or the
    cheapest. For a missed budget, offers the plan that meets it or has a lower peak.
    """
    is_asked = bool(settings.techniques & NEED_BUDGET) or (settings.budget is not None and result.shortfall is None)
    if is_asked or result.status == "interrupted" or not 0 < graph.n_ops <= MOST_OPS:
        return None
    try:
        if settings.budget is not None:
            return _within_budget(graph, result, settings, progress or current_report())
        return _look_beyond(graph, result, settings, progress or current_report())
    except KeyboardInterrupt:
        return None


def _within_budget(graph: Graph, result: Result, settings: PlanSettings, progress: Report) -> NextTechnique | None:
    progress("looking whether the budget is met where ops run again")
    prices = _prices(graph, settings)
    space = graph.spaces[0].name
    most, baseline = result.budget.allowed[space], result.baseline_peak_bytes[space]
    if most is None:
        return None
    techniques = settings.techniques | {"reorder", "share", "recompute"}
    asked = replace(
        settings,
        budget=max(most, 0),
        transient=True,
        techniques=techniques,
        costs=prices,
        effort="fast",
        addresses=False,
    )
    found = find_plan(graph, asked)
    fits, budget = most >= 0 and found.shortfall is None, shlex.quote(str(settings.budget))
    if not fits and baseline:
        percent = math.ceil(found.peak_bytes[space] * 10_000 / baseline)
        budget = f"{percent / 100:.2f}%"
        found = find_plan(graph, replace(asked, budget=baseline * percent // 10_000))  # the offer's budget
    if found.shortfall is not None or found.peak_bytes[space] >= result.peak_bytes[space]:
        return None
    return NextTechnique(
        space=space,
        peak_bytes=found.peak_bytes[space],
        extra_cost=found.extra_cost,
        base_cost=found.base_cost,
        costs=prices.profile,
        budget=budget,
        fits=fits,
    )


def _prices(graph: Graph, settings: PlanSettings) -> Prices:
    return settings.prices(graph) if settings.costs != "given" or carries_costs(graph) else price(graph, "eager")


def _look_beyond(graph: Graph, result: Result, settings: PlanSettings, progress: Report) -> NextTechnique | None:
    progress("looking at what recomputation would give")
    prices = _prices(graph, settings)
    problem = Problem(graph, result.plan.callees, settings.takes_pairs)
    space, order = graph.spaces[0].name, result.plan.order()
    peak, floor = result.peak_bytes[space], floor_of(OrderedProgram(problem, order, prices.seconds, 0)).peak_bytes
    budgets = sorted({peak - (peak - floor) * step // _STEPS for step in range(1, _STEPS + 1)})
    baseline = result.baseline_peak_bytes[space]
    if len(budgets) < _STEPS or not baseline:
        return None
    points = plan_curve(problem, [("", order)], budgets, cost=prices.seconds, effort="fast", exact=False).points
    lower = [point for point in points if point.fits and point.peak_bytes < peak]
    if not lower:
        return None
    base = float(prices.seconds.sum())
    cheap = [point for point in lower if point.extra_cost <= _LITTLE_TIME * base]
    taken = min(cheap, key=lambda point: point.peak_bytes) if cheap else min(lower, key=lambda point: point.extra_cost)
    return NextTechnique(
        space=space,
        peak_bytes=taken.peak_bytes,
        extra_cost=taken.extra_cost,
        base_cost=base,
        costs=prices.profile,
        budget=f"{math.ceil(taken.peak_bytes * 10_000 / baseline) / 100:.2f}%",
    )
