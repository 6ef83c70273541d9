"""The result of `plan --curve`."""

from lowtide.core.documents import fields_of
from lowtide.core.units import format_bytes, percent
from lowtide.engine.planning.frontier import Frontier
from lowtide.reporting.fields import CurveFields, PointFields
from lowtide.reporting.shortfall import describe, point_verdict
from lowtide.reporting.table import format_table, printable, table_width


def frontier_to_json(frontier: Frontier) -> CurveFields:
    points = [
        fields_of(
            PointFields,
            point,
            extra_cost_bound=point.extra_cost_bound if point.fits else None,
            solver_bound=point.solver_bound if point.fits else None,
            shortfall=None if point.shortfall is None else describe(point.shortfall),
        )
        for point in frontier.points
    ]
    return fields_of(CurveFields, frontier, points=points)


def frontier_to_text(name: str, frontier: Frontier) -> str:
    base = frontier.base_cost or 1.0
    rows = [
        [
            format_bytes(point.budget_bytes),
            format_bytes(point.peak_bytes),
            percent(point.extra_cost / base),
            percent(point.extra_cost_bound / base) if point.fits else "-",
            f"{point_verdict(point)}{', the knee' if number == frontier.knee else ''}",
        ]
        for number, point in enumerate(frontier.points)
    ]
    header = ["budget", "peak", "extra time", "at least", "status"]
    return "\n".join(
        [
            f"{printable(name)}: memory against time in {printable(frontier.space)}",
            f"  baseline peak {format_bytes(frontier.baseline_peak_bytes)}; budgets from the peak of order "
            f"{frontier.base_order} down to its floor; {frontier.costs} prices",
            format_table(header, rows, [True, True, True, True, False], table_width()),
        ]
    )
