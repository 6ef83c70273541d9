"""The frontier of memory and time: what every byte less costs, from the least peak of an order down to the floor."""

from collections.abc import Callable
from dataclasses import dataclass

from lowtide.analysis.footprint import simulate
from lowtide.analysis.problem import Problem
from lowtide.costs import Prices, ProfileName
from lowtide.effort import EffortName
from lowtide.graph import Graph
from lowtide.notebook import html_table
from lowtide.plan import Plan
from lowtide.planning.settings import PlanSettings
from lowtide.recompute import RecomputeResult, plan_curve
from lowtide.schedule import make_candidate
from lowtide.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        """Return the headline."""
        peaks = [point.peak_bytes for point in self.points]
        reach = f", peaks {format_bytes(peaks[0])} to {format_bytes(peaks[-1])}" if peaks else ""
        return f"Frontier({self.space}: {len(peaks)} plans{reach})"

    def _repr_html_(self) -> str:
        base = self.base_cost or 1.0
        rows = [
            (format_bytes(point.peak_bytes), f"{point.extra_cost / base:.2%} more time, {point.status}{mark}")
            for number, point in enumerate(self.points)
            for mark in [", the knee" if number == self.knee else ""]
        ]
        return html_table(f"memory against time in {self.space}", rows)


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
