"""The result of `plan --curve`: one line per budget, with the knee marked."""

from lowtide.core.units import ByteUnit
from lowtide.engine.planning.frontier import Frontier
from lowtide.engine.recompute import RecomputeResult
from lowtide.reporting.fields import CurveFields
from lowtide.reporting.shortfall import describe
from lowtide.reporting.table import format_table, page_width, printable


def frontier_to_json(frontier: Frontier) -> CurveFields:
    """Return the fields of the JSON object."""
    return {
        "space": frontier.space,
        "baseline_peak_bytes": frontier.baseline_peak_bytes,
        "base_order": frontier.base_order,
        "base_cost": frontier.base_cost,
        "costs": frontier.costs,
        "points": [
            {
                "budget_bytes": point.budget_bytes,
                "peak_bytes": point.peak_bytes,
                "status": point.status,
                "extra_cost": point.extra_cost,
                "extra_cost_bound": point.extra_cost_bound if point.fits else None,
                "shortfall": None if point.shortfall is None else describe(point.shortfall),
            }
            for point in frontier.points
        ],
        "knee": frontier.knee,
    }


def frontier_to_text(name: str, frontier: Frontier) -> str:
    """Return the curve as text."""
    base = frontier.base_cost or 1.0
    unit = ByteUnit(frontier.baseline_peak_bytes)
    rows = [
        [
            unit.write(point.budget_bytes),
            unit.write(point.peak_bytes),
            f"{point.extra_cost / base:.2%}",
            f"{point.extra_cost_bound / base:.2%}" if point.fits else "-",
            f"{_status(point, unit)}{', the knee' if number == frontier.knee else ''}",
        ]
        for number, point in enumerate(frontier.points)
    ]
    header = ["budget", "peak", "extra time", "at least", "status"]
    return "\n".join(
        [
            f"{printable(name)}: memory against time in {printable(frontier.space)}",
            f"  baseline peak {unit.write(frontier.baseline_peak_bytes)}; budgets from the peak of order "
            f"{frontier.base_order} down to its floor; {frontier.costs} prices",
            format_table(header, rows, [True, True, True, True, False], page_width()),
        ]
    )


def _status(point: RecomputeResult, unit: ByteUnit) -> str:
    """Return the status of a point; if it misses its budget, by how much and whether every plan does."""
    if point.fits:
        return point.status
    over = unit.write(point.peak_bytes - point.budget_bytes)
    is_proven = point.status == "infeasible" and point.holds_for_any_order
    return f"misses by {over}{' (proven impossible)' if is_proven else ''}"
