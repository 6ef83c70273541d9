"""Plan within a byte budget with offload and recomputation, at the lowest slow-down found."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from lowtide.core.effort import DEFAULT_EFFORT, RECOMPUTE_EFFORTS, EffortName
from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import SpaceId
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.costs import Prices, given_prices
from lowtide.engine.offload.host_space import Link, find_link
from lowtide.engine.offload.joint_model import JointResult, solve_jointly
from lowtide.engine.offload.offload_search import OffloadSearch, TimedPlan, rerun_seconds, timed_plan
from lowtide.engine.offload.offloadable import greedy_choices, offloadable_buffers
from lowtide.engine.plan import StepKind, verify
from lowtide.engine.recompute import BudgetSearch, Drops, OrderedProgram, solver
from lowtide.engine.recompute.program import checked_cost
from lowtide.engine.recompute.result import RecomputeResult, explain_shortfall

_GREEDY_PART = 12
"""Share of all accesses that choices without the solver may execute, as one part in this number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OffloadResult(RecomputeResult):
    """A verified plan with recomputation and offload, and its slow-down in seconds (`extra_cost`). `drops` belong to
    the plan without copies."""

    rerun_seconds: float
    """Time of recomputed ops."""
    stall_seconds: float
    """Time that compute waits for copies."""
    hidden_seconds: float
    """Time of transfers while compute is busy."""
    offloaded_bytes: int
    """Bytes copied to the host."""


def plan_within_budget(
    problem: Problem,
    order: Order,
    budget_bytes: int,
    *,
    prices: Prices | None = None,
    allow: AbstractSet[str] = NEED_BUDGET,
    space: SpaceId = 0,
    host: SpaceId | None = None,
    effort: EffortName = DEFAULT_EFFORT,
    exact: bool = True,
    recomputed: RecomputeResult | None = None,
) -> OffloadResult:
    """Return a verified plan of low slow-down with its peak in a memory space within the budget.

    `order` is the order of first runs, `prices` gives the seconds per op (default: the graph's), `host` is the space to
    offload to (default: the first with copies both ways). `recomputed` is the result of `recompute.plan_within_budget`,
    if known. Plans with one technique are candidates too. Deterministic: limits count work. Raises UsageError for a
    negative budget, another technique, bad prices, or an invalid host.
    """
    graph = problem.graph
    if unknown := sorted(set(allow) - NEED_BUDGET):
        raise UsageError(f"cannot allow {unknown[0]!r} here; allow recompute or offload")
    if host is not None and (host == space or not 0 <= host < len(graph.spaces)):
        raise UsageError(f"memory space {host} cannot be the host of {space}; give one of {len(graph.spaces)}")
    prices = prices or given_prices(graph)
    program = OrderedProgram(problem, order, checked_cost(problem, prices.seconds), space)
    recomputed = recomputed or BudgetSearch(program).plan(budget_bytes, RECOMPUTE_EFFORTS[effort], exact=exact)
    link = find_link(graph, space, host) if "offload" in allow else None
    baseline = program.execute(Drops())
    plans = [program.plan(baseline), *([recomputed.plan] if "recompute" in allow else [])]
    candidates = [timed_plan(graph, plan, prices, space, budget_bytes, None) for plan in plans]
    best = min(candidates, key=lambda plan: plan.rank)
    joint = JointResult()
    if link is not None and best.over_bytes + best.timeline.extra_seconds > 0:
        room = _room_on_host(program, best, link)
        search = OffloadSearch(program, budget_bytes, prices, link, best)
        offloadable = offloadable_buffers(program)
        choices = list(greedy_choices(program, program.execute(recomputed.drops), baseline, link, room))
        if int(graph.sizes[offloadable].sum()) <= room:
            choices.append(offloadable)
        for rerun in (False, True) if "recompute" in allow else (False,):
            limit = search.play_work + RECOMPUTE_EFFORTS[effort].play_work // _GREEDY_PART
            for choice in choices:
                if search.play_work < limit:
                    search.try_choice(choice, rerun=rerun, play_work=limit - search.play_work)
        if exact and solver.is_available() and recomputed.floor.peak_bytes <= budget_bytes:
            joint = solve_jointly(search, RECOMPUTE_EFFORTS[effort], rerun="recompute" in allow)
        best = search.best
    return _result(program, recomputed, best, prices, link, joint)


def _room_on_host(program: OrderedProgram, best: TimedPlan, link: Link) -> int:
    graph = program.problem.graph
    host = graph.spaces[link.host]
    if host.capacity_bytes is None:
        return int(graph.sizes.sum())
    return max(0, host.capacity_bytes - best.peaks[host.name] - graph.persistent_bytes()[host.name])


def _result(
    program: OrderedProgram,
    recomputed: RecomputeResult,
    best: TimedPlan,
    prices: Prices,
    link: Link | None,
    joint: JointResult,
) -> OffloadResult:
    graph = program.problem.graph
    verify(graph, best.plan, check_capacity=False)
    fits, peak = best.over_bytes == 0, best.peaks[graph.spaces[program.space].name]
    copied = int(graph.sizes[best.plan.targets[best.plan.kinds == StepKind.COPY_OUT]].sum())
    bound = recomputed.extra_cost_bound
    if link is not None and recomputed.floor.peak_bytes <= recomputed.budget_bytes:
        bound = min(joint.bound, best.timeline.extra_seconds) if fits else joint.bound
    return OffloadResult(
        plan=best.plan,
        drops=recomputed.drops,
        budget_bytes=recomputed.budget_bytes,
        peak_bytes=peak,
        fits=fits,
        base_cost=best.timeline.base_seconds,
        extra_cost=best.timeline.extra_seconds,
        extra_cost_bound=bound,
        floor=recomputed.floor,
        peak_bound=recomputed.floor.peak_bytes,
        method=recomputed.method,
        work=recomputed.work + joint.work,
        places=joint.places or recomputed.places,
        shortfall=None if fits else explain_shortfall(program, recomputed.floor, recomputed.budget_bytes, peak, bound),
        rerun_seconds=rerun_seconds(prices, best.plan),
        stall_seconds=best.timeline.stall_seconds,
        hidden_seconds=best.timeline.hidden_seconds,
        offloaded_bytes=copied,
    )
