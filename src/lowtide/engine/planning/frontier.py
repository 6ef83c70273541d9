"""The frontier of memory and time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lowtide.core.collection import without_collection
from lowtide.core.notebook import html_table
from lowtide.core.progress import Report, current_report
from lowtide.core.techniques import NEED_BUDGET, Techniques
from lowtide.core.units import format_bytes, percent
from lowtide.engine.graph import Graph
from lowtide.engine.planning.draft import Draft
from lowtide.engine.planning.find_plan import baseline, order
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.planning.trade import with_reruns
from lowtide.engine.recompute import Composed, OrderedProgram, RecomputeResult, curve_of, default_budgets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Frontier:
    """Plans for several budgets, largest first: peaks fall, extra costs rise."""

    space: str
    """The memory space of the budgets."""
    baseline_peak_bytes: int
    base_order: str
    """The order that the largest budget comes from."""
    base_cost: float
    costs: str
    """The profile that priced the ops."""
    points: tuple[RecomputeResult, ...]
    knee: int | None
    """The best trade-off; None if fewer than three fit."""

    def __repr__(self) -> str:
        peaks = [point.peak_bytes for point in self.points]
        reach = f", peaks {format_bytes(peaks[0])} to {format_bytes(peaks[-1])}" if peaks else ""
        return f"Frontier({self.space}: {len(peaks)} plans{reach})"

    def _repr_html_(self) -> str:
        base = self.base_cost or 1.0
        rows = [
            (format_bytes(point.peak_bytes), f"{percent(point.extra_cost / base)} more time, {point.status}{mark}")
            for number, point in enumerate(self.points)
            for mark in [", the knee" if number == self.knee else ""]
        ]
        return html_table(f"memory against time in {self.space}", rows)


@without_collection()
def least_peak(graph: Graph, settings: PlanSettings, progress: Report | None = None) -> Draft:
    """Return a draft in an order of least peak, the start of the frontier."""
    free = replace(settings, techniques=settings.techniques - NEED_BUDGET)
    return order(baseline(graph, free), progress or current_report())


def budgets_from(least: Draft) -> list[int]:
    """Return seven budgets from the draft's peak down to its floor."""
    return default_budgets(OrderedProgram(least.problem, least.plan.order(), least.prices.seconds))


@without_collection()
def frontier_from(
    least: Draft, settings: PlanSettings, budgets: Sequence[int], progress: Report | None = None
) -> Frontier:
    report = progress or current_report()
    asked = settings.techniques | {"recompute"}
    composed: list[Composed] = []
    too_large: Draft | None = None
    for budget in sorted(set(budgets), reverse=True):
        draft = baseline(least.graph, _within(settings, asked, budget))
        if too_large is None:
            draft = order(draft, report)
            too_large = None if draft.fits else draft
        else:  # no order fits a smaller budget either
            draft = replace(too_large, settings=draft.settings, budget=draft.budget)
        composed.append(with_reruns(draft, budget, report))
    curve = curve_of(composed, least.prices.seconds)
    space = least.graph.spaces[0].name
    return Frontier(
        space=space,
        baseline_peak_bytes=least.unmodified_peak_bytes[space],
        base_order=settings.order_name,
        base_cost=float(least.prices.seconds.sum()),
        costs=least.prices.profile,
        points=curve.points,
        knee=curve.knee,
    )


def _within(settings: PlanSettings, techniques: Techniques, budget: int) -> PlanSettings:
    return replace(settings, techniques=techniques, budget=budget, transient=True)
