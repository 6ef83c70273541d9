"""What the next technique would give where an order alone has done what it can: a lower peak, and its price."""

import math
import shlex
from dataclasses import dataclass, replace

from lowtide.core.progress import Report, silent
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.costs import Prices, carries_costs, price
from lowtide.engine.graph import Graph
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.recompute import plan_curve
from lowtide.engine.recompute.floor import floor_of
from lowtide.engine.recompute.program import Program

MOST_OPS = 5_000
"""Larger graphs are not asked: their plans within budgets take longer than the order did."""
_LITTLE_TIME = 0.01
"""Share of the run time that anybody would give for less memory."""
_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTechnique:
    """A plan with recomputation that was found and verified, as an offer."""

    space: str
    peak_bytes: int
    extra_cost: float
    base_cost: float
    costs: str
    """The profile that priced the ops."""
    budget: str
    """The budget that asks for it."""
    fits: bool = False
    """Whether it is the budget that was given and not met, which this plan meets."""

    @property
    def settings(self) -> str:
        """What to give to `lowtide plan` and `lowtide optimize`."""
        return f"--budget {self.budget} --allow reorder,share,recompute --costs {self.costs}"


def next_technique(
    graph: Graph, result: Result, settings: PlanSettings, progress: Report | None = None
) -> NextTechnique | None:
    """Return what recomputation would give beyond a result for the graph; None where it was allowed or gives nothing.

    Of three budgets from the result's peak down to its floor, the least that costs 1 % more time at most; where none
    does, the cheapest. Where a budget was not met, the plan that meets it or, where there is none, one for the least
    that was found, and None where that is no less. Little effort is spent: a
    call with that budget finds the same or better. None too for a result that met its budget or was interrupted, and
    for graphs of more than `MOST_OPS` ops. Ctrl-C ends this look alone: the result stands, and None is returned.
    """
    is_asked = bool(settings.techniques & NEED_BUDGET) or (settings.budget is not None and result.shortfall is None)
    if is_asked or result.status == "interrupted" or not 0 < graph.n_ops <= MOST_OPS:
        return None
    try:
        if settings.budget is not None:
            return _within_budget(graph, result, settings, progress or silent)
        return _look_beyond(graph, result, settings, progress or silent)
    except KeyboardInterrupt:
        return None


def _within_budget(graph: Graph, result: Result, settings: PlanSettings, progress: Report) -> NextTechnique | None:
    """Return the plan that meets by reruns the budget that an order alone did not meet, or comes closest to it."""
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
        found = find_plan(graph, replace(asked, budget=baseline * percent // 10_000))  # what the offer asks for
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
    peak, floor = result.peak_bytes[space], floor_of(Program(problem, order, prices.seconds, 0)).peak_bytes
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
