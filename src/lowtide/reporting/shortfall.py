"""Verdicts in words."""

import math
from collections.abc import Mapping, Sequence

from lowtide.core.techniques import Techniques, listed
from lowtide.core.units import format_bytes, percent
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.analysis.folding import named_largest
from lowtide.engine.packing import Buffers, Packed
from lowtide.engine.plan import Plan, Status
from lowtide.engine.plan.claim import PlanClass
from lowtide.engine.planning.next_technique import NextTechnique
from lowtide.engine.planning.result import Result
from lowtide.engine.recompute import RecomputeResult
from lowtide.reporting.claims import caption
from lowtide.reporting.table import printable

_MOST_NAMED = 8
_NOT_PROVEN = "best plan found (not proven optimal)"
_STATUSES: Mapping[Status, str] = {
    "optimal": "optimal",
    "feasible": _NOT_PROVEN,
    "stopped_by_work": _NOT_PROVEN,
    "infeasible": "misses the budget that it was made for",
    "interrupted": "interrupted",
}
_NONE_FITS: Mapping[PlanClass, str] = {
    "orders": "no order fits",
    "reruns": "no plan fits, even with recomputation",
    "copies": "no plan fits, even with recomputation and copies",
}


def describe(shortfall: Shortfall) -> str:
    """Return why a plan misses its budget or capacity, in one sentence."""
    allowed, reached = shortfall.allowed_bytes, shortfall.reached_bytes
    limit = f"the {format_bytes(max(allowed, 0))} that {shortfall.limited_by} leaves"
    missed = format_bytes(shortfall.missed_bytes)
    found = f"the best plan found needs {format_bytes(reached)} in {shortfall.space}, {missed} more than {limit}"
    needed = 0 if shortfall.needed_bytes is None else shortfall.needed_bytes
    more = f"{format_bytes(needed)} in {shortfall.space}, {format_bytes(needed - allowed)} more than {limit}"
    live = f"; live then: {named_largest(shortfall.holders)}" if shortfall.holders else ""
    shown = "" if shortfall.claim is None else f" ({shortfall.claim.sentence})"
    match shortfall.cause:
        case "persistent buffers":
            return (
                f"persistent buffers need {format_bytes(needed)} in {shortfall.space}, {format_bytes(-allowed)} more "
                f"than {shortfall.limited_by} allows; the best plan found needs another {format_bytes(reached)}"
            )
        case "inputs and outputs":
            return f"inputs and outputs alone need {more}{shown}{live}"
        case "op" if shortfall.op_bytes is not None and shortfall.op_bytes >= needed:
            return f"op {shortfall.op} alone needs {more}{shown}{live}"
        case "op":
            own = "" if shortfall.op_bytes is None else f" ({format_bytes(shortfall.op_bytes)} of its own)"
            return f"the tensors live during op {shortfall.op}{own} need {more}{shown}{live}"
        case "operands of an op":
            return f"computing all operands of op {shortfall.op} needs {more}{shown or ', even with recomputation'}"
        case "every order" | "every plan":
            return f"{shortfall.cause} needs at least {more}{shown}"
        case "base order":
            return f"{found}; proven impossible for first runs in order {shortfall.base_order}"
        case "plan file":
            return f"the plan in {shortfall.source} is marked as over its budget"
        case "not found":
            return f"{found}; not proven impossible"


def describe_missed(result: Result) -> str | None:
    """Return why a result misses its budget, and its lowest peak; None if it meets the budget."""
    if result.shortfall is None:
        return None
    reached, before = (peaks[result.shortfall.space] for peaks in (result.peak_bytes, result.baseline_peak_bytes))
    share = f", {percent(math.ceil(reached * 1000 / before) / 1000)} of the baseline" if before else ""
    return f"{describe(result.shortfall)}; the lowest peak reached is {format_bytes(reached)}{share}"


def outcome(result: Result) -> str:
    """Return the outcome of planning: "fits the budget", "misses the budget by 4.0 MiB"."""
    shortfall = result.shortfall
    if shortfall is not None:
        text = f"misses {shortfall.limited_by} by {format_bytes(shortfall.missed_bytes)}{_proven(shortfall)}"
    elif any(most is not None for most in result.budget.allowed.values()):
        is_budget = "the budget" in result.budget.limited_by.values()
        text = "fits the budget" if is_budget else "fits the memory space"
        if result.status == "optimal":
            text += " (optimal)"
    elif result.status == "optimal":
        text = "optimal order" if not result.reruns and not result.transfers.bytes_out else "optimal plan"
    elif result.status == "interrupted":
        return "interrupted"
    else:
        return _NOT_PROVEN
    return f"{text}, interrupted" if result.status == "interrupted" else text


def _proven(shortfall: Shortfall) -> str:
    if not shortfall.is_impossible:
        return ""
    if shortfall.cause == "base order":
        return f" (proven: no plan fits with first runs in order {shortfall.base_order})"
    none_fits = "no plan fits" if shortfall.claim is None else _NONE_FITS.get(shortfall.claim.over, "no plan fits")
    return f" (proven: {none_fits})"


def short_verdict(plan: Plan, *, is_missed: bool) -> str:
    return "misses the budget" if is_missed else _STATUSES[plan.status]


def verdict(plan: Plan, *, is_missed: bool) -> str:
    """Return a plan's status; if optimal, with the class of plans that it beats."""
    if plan.status != "optimal":
        return short_verdict(plan, is_missed=is_missed)
    over_cost = any(claim.figure == "extra cost" for claim in plan.claims)
    return "optimal: " + ("no plan within the budget takes less time" if over_cost else caption(plan.claims))


def offer_verdict(offer: NextTechnique, after: str) -> str:
    """Return the gain, price and options of recomputation."""
    more = f"{percent(offer.extra_cost / offer.base_cost, signed=True)} time" if offer.base_cost else "more time"
    return f"{'fits with' if offer.fits else 'lowers the peak to'} {after} for {more}: {offer.settings}"


def point_verdict(point: RecomputeResult) -> str:
    if point.fits:
        return point.status
    is_proven = point.status == "infeasible" and point.holds_for_any_order
    over = format_bytes(point.peak_bytes - point.budget_bytes)
    return f"misses by {over}{' (proven: no plan fits)' if is_proven else ''}"


def device_verdict(techniques: Techniques | None, tried: Sequence[Techniques]) -> str:
    if techniques is None:
        return f"does not fit, tried with {listed(tried[-1])}"
    return f"fits with {listed(techniques)}" if techniques else "fits unmodified"


def describe_packing(buffers: Buffers, packed: Packed, capacity: int | None) -> str | None:
    """Return why a packing exceeds a capacity and whether that is proven; None if it fits."""
    if capacity is None or packed.arena_bytes <= capacity:
        return None
    if packed.status == "infeasible":
        names = [printable(buffers.name(buffer)) for buffer in packed.conflict[:_MOST_NAMED]]
        rest = len(packed.conflict) - len(names)
        more = f" and {rest} more" if rest else ""
        needed = " (a smallest such set)" if packed.conflict_minimal else ""
        held = f"; these cannot fit together{needed}: {', '.join(names)}{more}" if names else ""
        return f"proven: no packing fits {capacity} bytes{held}"
    over = packed.arena_bytes - capacity
    return f"no packing into {capacity} bytes found, the best needs {over} more; not proven impossible"
