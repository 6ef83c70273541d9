"""The third stage: time for memory, by running ops again and by copies to the host, where no order alone fits."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lowtide.core.progress import Report
from lowtide.core.techniques import NEED_BUDGET
from lowtide.core.units import ByteUnit
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.analysis.lower_bounds import LowerBound
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.offload import plan_within_budget as plan_with_offload
from lowtide.engine.plan import Plan, Status
from lowtide.engine.planning.claims import claims_of_peaks
from lowtide.engine.planning.draft import Draft, stage
from lowtide.engine.recompute import Composed, compose, least_possible, least_to_gather
from lowtide.engine.recompute.result import RecomputeResult


@stage
def trade(draft: Draft, report: Report) -> Draft:
    """Return the draft with the cheapest plan found that fits the first memory space, and what it is worth.

    What runs again is chosen first (`recompute.compose`); where offload is allowed, copies to the host are tried on
    the same base order and on the draft's, alone and together with reruns, and the least slow-down wins. The draft's
    order is a base beside the given one where any order may be taken. Infeasible is claimed where no order can fit, or
    none may be chosen; else a plan that does not fit is feasible, with the reason why. Ctrl-C leaves the best plan
    found until then.
    """
    if not draft.settings.techniques & NEED_BUDGET or draft.interrupted or draft.fits:
        return draft
    graph = draft.graph
    draft.keep_so_far(draft.plan)
    most = draft.budget.allowed[graph.spaces[0].name] or 0
    so_far: list[Plan] = []

    def keep(plan: Plan) -> None:
        so_far[:] = [replace(plan, peak_bytes=simulate(graph, plan).peak_bytes)]
        draft.keep_so_far(so_far[0])

    try:
        base, result = _cheapest(draft, max(most, 0), report, keep)
    except KeyboardInterrupt:
        if not (so_far and draft.is_beaten_by(so_far[0])):
            raise
        return _interrupted(draft, so_far[0])
    bounds, searched_peak = _bounds(draft, result)
    judged = replace(
        draft,
        base_order=base,
        extra_cost_bound=result.extra_cost_bound if math.isfinite(result.extra_cost_bound) else None,
        is_of_any_order=result.holds_for_any_order,
        bounds=bounds,
        searched_peak=searched_peak,
        proof=None,
        solved=None,
        status=_status(result, bounds[0].peak_bytes > most, draft.settings.chooses_order),
    )
    # Where persistent buffers alone are too large, the next stage says so.
    judged = replace(judged, status=None) if most < 0 else replace(judged, shortfall=_shortfall(judged, result))
    plan = replace(result.plan, peak_bytes=simulate(graph, result.plan).peak_bytes)
    return replace(judged.taking(plan), extra_cost=result.extra_cost) if draft.is_beaten_by(plan) else judged


def _interrupted(draft: Draft, plan: Plan) -> Draft:
    """Return the draft with the best plan that was found until Ctrl-C, of which no bound is known."""
    runs = draft.prices.seconds[plan.order()].sum()
    taken = replace(draft.taking(plan), interrupted=True, extra_cost_bound=None)
    return replace(taken, extra_cost=float(runs - draft.prices.seconds.sum()))


def bounds_with_reruns(problem: Problem, *, copies: bool) -> tuple[LowerBound, ...]:
    """Return, per memory space, what no plan can beat, in any order and whatever runs again or is copied, if `copies`.

    An operand that was copied to the host need not be there while another one is made.
    """
    spaces = range(len(problem.graph.spaces))
    needed = [least_possible(problem, space) for space in spaces]
    if copies:
        return tuple(needed)
    gathered = [least_to_gather(problem, space) for space in spaces]
    return tuple(max(pair, key=lambda bound: bound.peak_bytes) for pair in zip(needed, gathered, strict=True))


def _bounds(draft: Draft, result: RecomputeResult) -> tuple[tuple[LowerBound, ...], int]:
    """Return what no plan can beat, and what of the first space a search of all runs showed, 0 for nothing."""
    first, *others = bounds_with_reruns(draft.problem, copies="offload" in draft.settings.techniques)
    if not result.holds_for_any_order or result.peak_bound <= first.peak_bytes:
        return (first, *others), 0
    return (LowerBound(space=first.space, peak_bytes=result.peak_bound, op=None), *others), result.peak_bound


def _cheapest(draft: Draft, most: int, report: Report, keep: Callable[[Plan], None]) -> tuple[str, RecomputeResult]:
    """Return the cheapest plan within a limit, and the name of its base order."""
    traded = draft.settings.techniques & NEED_BUDGET
    (base, order), alone = base_orders(draft)[-1], None
    if "recompute" in traded:
        found = with_reruns(draft, most, report, keep)
        base, order, alone = found.base, found.order, found.result
        if "offload" not in traded:
            return base, alone
    base, offloaded = _with_copies(draft, most, (base, order), alone, report)
    if alone is None or offloaded.rank <= alone.rank:
        return base, offloaded
    bound = min(offloaded.extra_cost_bound, alone.extra_cost)
    return base, replace(alone, extra_cost_bound=bound, holds_for_any_order=False)


def _with_copies(
    draft: Draft, most: int, start: tuple[str, Order], alone: RecomputeResult | None, report: Report
) -> tuple[str, RecomputeResult]:
    """Return the cheapest plan with copies within a limit and its base order: that of reruns alone, or one before it.

    What is best for reruns alone may leave copies less time to hide, and so may the order of least peak: they are free
    while compute has other work, which the program's own order often gives them. None is tried after one that costs
    nothing.
    """
    found: list[tuple[str, RecomputeResult]] = []
    tried: set[bytes] = set()
    for name, order in (start, *base_orders(draft)):
        if order.tobytes() in tried:
            continue
        report(f"choosing what goes to the host ({name})")
        found.append((name, _copied(draft, order, most, None if tried else alone)))
        tried.add(order.tobytes())
        if found[-1][1].rank[:2] == (0, 0.0):
            break
    return min(found, key=lambda each: each[1].rank)


def _copied(draft: Draft, order: Order, most: int, alone: RecomputeResult | None) -> RecomputeResult:
    """Return the cheapest plan with copies within a limit for an order of first runs; `alone` is that of reruns."""
    settings = draft.settings
    allow, effort = settings.techniques & NEED_BUDGET, settings.effort
    return plan_with_offload(
        draft.problem, order, most, prices=draft.prices, allow=allow, effort=effort, recomputed=alone
    )


def base_orders(draft: Draft) -> list[tuple[str, Order]]:
    """Return the orders of first runs to start from, by name: the program's, and the draft's where any may be taken."""
    given = draft.problem.given_order()
    if draft.settings.chooses_order and not np.array_equal(draft.plan.order(), given):
        return [("given", given), (draft.scheduler, draft.plan.order())]
    return [("given", given)]


def with_reruns(draft: Draft, most: int, report: Report, keep: Callable[[Plan], None] | None = None) -> Composed:
    """Return the cheapest plan with recomputation within a limit of the first memory space.

    `keep` is handed every plan on the way that is better than the ones before.
    """
    return compose(
        draft.problem,
        base_orders(draft),
        most,
        cost=draft.prices.seconds,
        reorder=draft.settings.chooses_order,
        effort=draft.settings.effort,
        progress=report,
        keep=keep,
        negligible=draft.prices.precision,
    )


def _shortfall(draft: Draft, result: RecomputeResult) -> str | None:
    """Say why the budget is not met, with the claim that shows it; None where it is met."""
    if result.shortfall is None or result.status != "infeasible":
        return result.shortfall
    space, most = draft.graph.spaces[0].name, result.budget_bytes
    shown = [claim for claim in claims_of_peaks(draft) if claim.space == space and claim.at_least > most]
    if not shown:
        return f"{result.shortfall} (with first runs in order {draft.base_order})"
    least = int(shown[0].at_least)
    unit = ByteUnit(least)
    is_searched = draft.searched_peak > 0
    if least == result.floor.peak_bytes or (result.floor.peak_bytes <= most and not is_searched):
        return f"{result.shortfall} ({shown[0].sentence})"
    if result.floor.peak_bytes > most:
        return f"{result.shortfall}; every plan needs at least {unit.write(least)} ({shown[0].sentence})"
    return (
        f"every plan needs at least {unit.write(least)} in {space}, {unit.write(least - most)} more than the budget "
        f"of {unit.write(most)} ({shown[0].sentence})"
    )


def _status(result: RecomputeResult, impossible: bool, reorder: bool) -> Status:
    """Return what a result is worth among all plans that may be made; most bounds of a cost are of one base order."""
    is_of_all = result.holds_for_any_order or not reorder
    if result.fits:
        cannot_cost_less = result.extra_cost == 0 or (result.status == "optimal" and is_of_all)
        return "optimal" if cannot_cost_less else "feasible"
    return "infeasible" if impossible or (result.status == "infeasible" and is_of_all) else "feasible"
