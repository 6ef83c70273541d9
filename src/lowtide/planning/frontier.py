"""The frontier of memory and time: what every byte less costs, from the least peak of an order down to the floor."""

from collections.abc import Callable
from dataclasses import dataclass

from lowtide.analysis.footprint import simulate
from lowtide.analysis.problem import Problem
from lowtide.costs import Prices, ProfileName
from lowtide.effort import EffortName
from lowtide.graph import Graph
from lowtide.plan import Plan
from lowtide.planning.settings import PlanSettings
from lowtide.recompute import RecomputeResult, plan_curve
from lowtide.schedule import make_candidate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frontier:
    """Plans for several budgets, from the largest to the smallest: peaks never rise, extra costs never fall."""

    space: str
    """The memory space whose peak the budgets are for."""
    baseline_peak_bytes: int
    base_order: str
    """The order of first runs that all plans share, by name."""
    base_cost: float
    costs: str
    """The profile that priced the ops."""
    points: tuple[RecomputeResult, ...]
    knee: int | None
    """The point to take when there is no reason for another; None where fewer than three fit."""


def frontier(
    graph: Graph,
    *,
    reorder: bool = True,
    in_place: bool = True,
    costs: ProfileName | Prices = "given",
    effort: EffortName = PlanSettings.effort,
    progress: Callable[[str], None] | None = None,
) -> Frontier:
    """Plan a graph for seven budgets of its first memory space, evenly spaced from the base order's peak to its floor.

    The base order is the one of least peak where `reorder` is allowed, else the given one. Every plan is verified.
    Raises UsageError for an unknown effort or cost profile.
    """
    prices = PlanSettings(costs=costs, effort=effort).prices(graph)
    name = "search" if reorder else "given"
    found = make_candidate(name, graph, in_place=in_place, effort=effort, progress=progress)
    problem = Problem(graph, found.plan.callees, in_place)
    if progress is not None:
        progress(f"planning several budgets ({name})")
    curve = plan_curve(problem, found.plan.order(), cost=prices.seconds, effort=effort)
    space = graph.spaces[0].name
    return Frontier(
        space=space,
        baseline_peak_bytes=simulate(graph, Plan.baseline(graph)).peak_bytes[space],
        base_order=name,
        base_cost=float(prices.seconds.sum()),
        costs=prices.profile,
        points=curve.points,
        knee=curve.knee,
    )
