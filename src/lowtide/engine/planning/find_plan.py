"""From a graph to a verified plan, in seven stages."""

import time
from dataclasses import replace

import numpy as np

from lowtide.core.collection import without_collection
from lowtide.core.effort import DEFAULT_EFFORT
from lowtide.core.progress import Report, Stage, current_report
from lowtide.core.techniques import NEED_BUDGET, refuse_ignored, refuse_without_budget
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.offload import find_link
from lowtide.engine.overlap import hide_collectives
from lowtide.engine.packing import pack_plan
from lowtide.engine.plan import Plan, verify
from lowtide.engine.planning.budget import parse_budget
from lowtide.engine.planning.claims import claims_of
from lowtide.engine.planning.draft import Draft, Keep, stage
from lowtide.engine.planning.judge import judge
from lowtide.engine.planning.plan_cache import CachedPlan
from lowtide.engine.planning.result import Result, result_of
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.planning.tighten import tighten
from lowtide.engine.planning.trade import trade
from lowtide.engine.schedule import make_candidate, make_candidate_within, with_least_arena
from lowtide.engine.timeline import play_timeline

_WAITS_AT_ONCE = "cpu"
"""PyTorch's CPU, where a collective blocks until it is complete, so nothing can hide it."""


@without_collection()
def find_plan(
    graph: Graph,
    settings: PlanSettings,
    unmodified: Graph | None = None,
    progress: Report | None = None,
    keep: Keep | None = None,
    *,
    start: Draft | None = None,
) -> Result:
    """Return the plan that the settings ask for; see `lowtide.minimize`. The graph already contains the host.

    Percentages and the baseline's peak refer to `unmodified`, if given. `keep` receives the best plan before each slow
    stage.
    """
    started = time.perf_counter()
    report = progress or current_report()
    draft = replace(start or baseline(graph, settings, unmodified), keep=keep)
    cached = CachedPlan.of(draft)
    if cached is not None and (known := cached.read()) is not None:
        report(Stage.DONE)
        return replace(known, seconds=time.perf_counter() - started)
    draft = order(draft, report)
    draft = trade(draft, report)
    draft = judge(draft, report)
    draft = overlap(draft, report)
    draft = place(draft, report)
    draft = verified(draft, report)
    result = result_of(draft, time.perf_counter() - started)
    if cached is not None:
        cached.write(result)
    report(Stage.DONE)
    return result


def baseline(graph: Graph, settings: PlanSettings, unmodified: Graph | None = None) -> Draft:
    """Return a draft with the plan in program order.

    Percentages refer to `unmodified`, if given. Raises UsageError for an unreadable budget or costs, and for techniques
    without effect.
    """
    plan = Plan.baseline(graph)
    plan = replace(plan, peak_bytes=simulate(graph, plan).peak_bytes)
    peak = plan.peak_bytes if unmodified is None else simulate(unmodified, Plan.baseline(unmodified)).peak_bytes
    budget = parse_budget(settings.budget, graph, peak, transient=settings.transient)
    if all(most is None for most in budget.allowed.values()):
        refuse_without_budget(settings.techniques)
    if find_link(graph, 0) is None:
        refuse_ignored(
            settings.techniques,
            {"offload"},
            "offload needs a memory space to copy to and from",
            f"give one of graph {graph.name!r} a bandwidth both ways, by --host-bandwidth or "
            "lowtide.engine.offload.with_host_space",
        )
    return Draft(
        graph=graph,
        settings=settings,
        budget=budget,
        prices=settings.prices(graph),
        unmodified=unmodified or graph,
        unmodified_peak_bytes=peak,
        in_chunks=unmodified is not None,
        plan=plan,
        problem=Problem(graph, plan.callees, in_place=settings.takes_pairs),
    )


@stage
def order(draft: Draft, report: Report) -> Draft:
    """Return the draft with the order that the settings ask for, if it beats program order, and with bounds.

    Without a budget, it is an order of least peak and, with addresses, of least arena; else one that fits and moves few
    ops.
    """
    if draft.interrupted:
        return draft
    report(Stage.ORDER)
    graph, settings = draft.graph, draft.settings
    name, in_place, effort = settings.order_name, settings.takes_pairs, settings.effort
    just_fit = settings.budget is not None and settings.chooses_order
    if just_fit and settings.techniques & NEED_BUDGET and not settings.prove and effort == DEFAULT_EFFORT:
        effort = "fast"
    if just_fit and draft.fits:
        name, just_fit = "given", False
    keep = draft.offer
    report(f"ordering {graph.n_ops} ops ({name})")
    if just_fit:
        found = make_candidate_within(draft.budget, graph, in_place=in_place, effort=effort, progress=report, keep=keep)
    else:
        found = make_candidate(
            name, graph, in_place=in_place, effort=effort, budget=draft.budget, progress=report, keep=keep
        )
    draft = replace(draft, bounds=found.bounds, proof=found.proof, solved=found.solved, interrupted=found.interrupted)
    if not draft.is_beaten_by(found.plan):
        return draft
    if not just_fit and settings.addresses:
        found = with_least_arena(found)
    draft = draft.taking(found.plan, found.packing)
    return replace(draft, scheduler=found.scheduler, interrupted=found.interrupted)


@stage
def overlap(draft: Draft, report: Report) -> Draft:
    """Return the draft with collectives and ops off the device starting earlier, to overlap with other ops.

    Memory may grow up to the budget or, without one, the plan's own peak. Cost bounds stay valid, since runs and the
    order of ordered ops do not change.
    """
    graph, plan = draft.graph, draft.plan
    waits_at_once = graph.spaces[0].name == _WAITS_AT_ONCE or not (graph.ranks > 1).any()
    if waits_at_once and not graph.off_device.any():
        return draft
    if draft.interrupted or not draft.settings.chooses_order:
        return with_stalls(draft)
    report("hiding collectives and copies behind computation")
    allowed = dict(plan.peak_bytes)
    if draft.settings.budget is not None:
        unlimited = graph.most_bytes if graph.updates_on_host.any() else 0
        limits = {space: unlimited if most is None else most for space, most in draft.budget.allowed.items()}
        allowed = {space: max(peak, limits[space]) for space, peak in allowed.items()}
    hidden = hide_collectives(graph, plan, draft.prices, allowed)
    if hidden is plan:
        return with_stalls(draft)
    is_least_peak = draft.is_optimal and draft.base_order is None
    loses_that = is_least_peak and dict(hidden.peak_bytes) != dict(plan.peak_bytes)
    moved = replace(
        draft.taking(hidden),
        is_optimal=draft.is_optimal and not loses_that,
        scheduler="overlap" if np.array_equal(plan.order(), draft.problem.given_order()) else draft.scheduler,
    )
    return with_stalls(moved)


def with_stalls(draft: Draft) -> Draft:
    if not draft.graph.off_device.any():
        return draft
    extra = play_timeline(draft.graph, draft.plan, draft.prices).extra_seconds
    costs_more = draft.settings.budget is not None and extra > (draft.extra_cost_bound or 0.0)
    return replace(draft, extra_cost=extra, is_optimal=draft.is_optimal and not costs_more)


@stage
def place(draft: Draft, report: Report) -> Draft:
    """Return the draft with claims and, if asked for, addresses; recomputed runs may move for a smaller arena."""
    report(Stage.FINISH)
    if draft.settings.addresses:
        draft = _packed(draft, report)
    packing = draft.packing
    plan = draft.plan.with_claims(
        status=draft.status,
        peak_bytes=draft.plan.peak_bytes,
        lower_bound_bytes={bound.space: bound.peak_bytes for bound in draft.bounds},
        arena_bytes={} if packing is None else packing.arena_bytes,
        addresses=() if packing is None else packing.addresses,
        claims=claims_of(draft, packing),
    )
    return replace(draft, plan=plan)


def _packed(draft: Draft, report: Report) -> Draft:
    report("placing buffers")
    effort = "fast" if draft.interrupted else draft.settings.effort
    packing = draft.packing
    if packing is None or not (packing.is_smallest or packing.effort == effort):
        packing = pack_plan(draft.graph, draft.plan, draft.problem.transient, effort=effort, progress=report)
    interrupted = draft.interrupted or packing.interrupted
    if not interrupted:
        tighter, packing = tighten(draft, packing, effort, report)
        draft = replace(draft, plan=tighter)
    return replace(draft, packing=packing, interrupted=interrupted)


@stage
def verified(draft: Draft, report: Report) -> Draft:
    plan = replace(draft.plan, status=draft.status) if draft.interrupted else draft.plan
    report("verifying the plan")
    verify(draft.graph, plan, check_capacity=False)
    return replace(draft, plan=plan)
