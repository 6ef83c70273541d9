"""The third stage: trade time for memory by recomputation and copies to the host, if no order alone fits."""

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

import numpy as np

from lowtide.core.progress import Found, Report, Stage
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.analysis.lower_bounds import LowerBound
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.offload import OffloadResult
from lowtide.engine.offload import plan_within_budget as plan_with_offload
from lowtide.engine.plan import Plan
from lowtide.engine.planning.claims import claims_of_peaks
from lowtide.engine.planning.draft import Draft, stage
from lowtide.engine.recompute import Composed, ComposeSettings, compose, least_possible, least_to_gather
from lowtide.engine.recompute.result import RecomputeResult

_composed: ContextVar[dict[object, Composed]] = ContextVar("composed")


@stage
def trade(draft: Draft, report: Report) -> Draft:
    """Return the draft with the cheapest plan found that fits the first memory space, and with its verdict.

    Recomputation is chosen first (`recompute.compose`). If offload is allowed, copies are then tried with and without
    it. Ctrl-C leaves the best plan found.
    """
    if not draft.settings.techniques & NEED_BUDGET or draft.interrupted or draft.fits:
        return draft
    graph = draft.graph
    report(Stage.CHOOSE)
    draft.offer(draft.plan)
    most = draft.budget.allowed[graph.spaces[0].name] or 0
    best: list[Plan] = []

    def keep(plan: Plan) -> None:
        best[:] = [replace(plan, peak_bytes=simulate(graph, plan).peak_bytes)]
        over, extra = draft.budget.excess_bytes(best[0].peak_bytes), _extra_cost(draft, plan)
        report(Found.of(over, extra / float(draft.prices.seconds.sum() or 1)))
        draft.offer(best[0])

    try:
        base, result = _cheapest(draft, max(most, 0), report, keep)
    except KeyboardInterrupt:
        if not (best and draft.is_beaten_by(best[0])):
            raise
        return _interrupted(draft, best[0])
    bounds, searched_peak = _bounds(draft, result)
    judged = replace(
        draft,
        base_order=base,
        extra_cost_bound=result.extra_cost_bound if math.isfinite(result.extra_cost_bound) else None,
        solver_bound=result.solver_bound,
        provable_cost=result.provable_cost,
        holds_for_any_order=result.holds_for_any_order,
        bounds=bounds,
        searched_peak=searched_peak,
        proof=None,
        solved=None,
    )
    if most >= 0:  # the next stage judges persistent buffers that are too large
        is_impossible = _is_impossible(result, bounds[0].peak_bytes, draft.settings.chooses_order)
        judged = replace(
            judged,
            is_judged=True,
            is_optimal=_is_optimal(result, draft.settings.chooses_order),
            shortfall=_shortfall(judged, result, is_impossible=is_impossible),
        )
    plan = replace(result.plan, peak_bytes=simulate(graph, result.plan).peak_bytes)
    return replace(judged.taking(plan), extra_cost=result.extra_cost) if draft.is_beaten_by(plan) else judged


def _interrupted(draft: Draft, plan: Plan) -> Draft:
    taken = replace(draft.taking(plan), interrupted=True, extra_cost_bound=None, solver_bound=None, provable_cost=None)
    return replace(taken, extra_cost=_extra_cost(draft, plan))


def _extra_cost(draft: Draft, plan: Plan) -> float:
    return float(draft.prices.seconds[plan.order()].sum() - draft.prices.seconds.sum())


def bounds_with_reruns(problem: Problem, *, copies: bool) -> tuple[LowerBound, ...]:
    """Return lower bounds of the peak per memory space for any order with recomputation and, if allowed, copies.

    With copies, operands may be on the host while another is made, so their sum is no bound.
    """
    spaces = range(len(problem.graph.spaces))
    needed = [least_possible(problem, space) for space in spaces]
    if copies:
        return tuple(needed)
    gathered = [least_to_gather(problem, space) for space in spaces]
    return tuple(max(pair, key=lambda bound: bound.peak_bytes) for pair in zip(needed, gathered, strict=True))


def _bounds(draft: Draft, result: RecomputeResult) -> tuple[tuple[LowerBound, ...], int]:
    first, *others = bounds_with_reruns(draft.problem, copies="offload" in draft.settings.techniques)
    if not result.holds_for_any_order or result.peak_bound <= first.peak_bytes:
        return (first, *others), 0
    return (LowerBound(space=first.space, peak_bytes=result.peak_bound, op=None), *others), result.peak_bound


def _cheapest(draft: Draft, most: int, report: Report, keep: Callable[[Plan], None]) -> tuple[str, RecomputeResult]:
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
    word = None if offloaded.solver_bound is None else min(offloaded.solver_bound, alone.extra_cost)
    claimed = word if word is not None and word > bound else None
    provable = offloaded.provable_cost and replace(offloaded.provable_cost, at_least=bound)
    raised = replace(alone, extra_cost_bound=bound, solver_bound=claimed, provable_cost=provable)
    return base, replace(raised, holds_for_any_order=False)


def _with_copies(
    draft: Draft, most: int, start: tuple[str, Order], alone: RecomputeResult | None, report: Report
) -> tuple[str, RecomputeResult]:
    """Return the cheapest plan with copies within a limit, and its base order.

    Tries several orders, since program order often has ops that hide copies. With ops off the device, only the first
    order is tried: a later stage hides waits for them.
    """
    found: list[tuple[str, OffloadResult]] = []
    tried: set[bytes] = set()
    others = [] if draft.graph.off_device.any() else base_orders(draft)
    for name, order in (start, *others):
        if order.tobytes() in tried:
            continue
        report(f"choosing what goes to the host ({name})")
        found.append((name, _copied(draft, order, most, None if tried else alone)))
        _offer(draft, found[-1][1].plan)
        tried.add(order.tobytes())
        last = found[-1][1]
        if last.fits and (last.extra_cost == 0 or not (last.rerun_seconds or last.offloaded_bytes)):
            break
    return min(found, key=lambda each: each[1].rank)


def _offer(draft: Draft, plan: Plan) -> None:
    draft.offer(replace(plan, peak_bytes=simulate(draft.graph, plan).peak_bytes))


def _copied(draft: Draft, order: Order, most: int, alone: RecomputeResult | None) -> OffloadResult:
    settings = draft.settings
    allow, effort = settings.techniques & NEED_BUDGET, settings.effort
    return plan_with_offload(
        draft.problem, order, most, prices=draft.prices, allow=allow, effort=effort, recomputed=alone
    )


def base_orders(draft: Draft) -> list[tuple[str, Order]]:
    """Return program order and, if allowed, the draft's order, by name."""
    given = draft.problem.given_order()
    if draft.settings.chooses_order and not np.array_equal(draft.plan.order(), given):
        return [("given", given), (draft.scheduler, draft.plan.order())]
    return [("given", given)]


def with_reruns(draft: Draft, most: int, report: Report, keep: Callable[[Plan], None] | None = None) -> Composed:
    """Return the cheapest plan with recomputation within a limit of the first memory space."""
    given, prices, orders = draft.settings, draft.prices, base_orders(draft)
    known = _composed.get({})
    key = draft.graph, prices.seconds.tobytes(), most, given.effort, given.prove, given.chooses_order, given.takes_pairs
    key += tuple((name, order.tobytes()) for name, order in orders)
    if key not in known:
        settings = ComposeSettings(
            cost=prices.seconds,
            reorder=given.chooses_order,
            effort=given.effort,
            prove=given.prove,
            negligible=prices.precision,
        )
        known[key] = compose(draft.problem, orders, most, settings, progress=report, keep=keep)
    elif keep is not None:
        keep(known[key].result.plan)
    return known[key]


@contextmanager
def recomputation_chosen_once() -> Generator[None]:
    """Keep plans with recomputation meanwhile, for searches that plan a graph without copies, then with them."""
    token = _composed.set({})
    try:
        yield
    finally:
        _composed.reset(token)


def _shortfall(draft: Draft, result: RecomputeResult, *, is_impossible: bool) -> Shortfall | None:
    missed = result.shortfall
    if missed is None:
        return None
    missed = replace(missed, base_order=draft.base_order, is_impossible=is_impossible)
    claims = claims_of_peaks(draft) if is_impossible else ()
    shown = [claim for claim in claims if claim.space == missed.space and claim.at_least > missed.allowed_bytes]
    if not shown:
        return replace(missed, cause="base order") if is_impossible else missed
    claim, needed = shown[0], int(shown[0].at_least)
    is_named = missed.needed_bytes is not None and (needed == missed.needed_bytes or not draft.searched_peak)
    if is_named:
        return replace(missed, needed_bytes=needed, claim=claim)
    return replace(missed, cause="every plan", needed_bytes=needed, claim=claim)


def _is_optimal(result: RecomputeResult, reorder: bool) -> bool:
    is_of_all = result.holds_for_any_order or not reorder
    return result.fits and (result.extra_cost == 0 or (result.status == "optimal" and is_of_all))


def _is_impossible(result: RecomputeResult, lower_bound: int, reorder: bool) -> bool:
    is_of_all = result.holds_for_any_order or not reorder
    return not result.fits and (lower_bound > result.budget_bytes or (result.status == "infeasible" and is_of_all))
