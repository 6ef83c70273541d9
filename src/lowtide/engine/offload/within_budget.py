"""The budgeted planner with offload: the least slow-down within a byte budget, by reruns and by copies."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from lowtide.core.effort import DEFAULT_EFFORT, RECOMPUTE_EFFORTS, EffortName
from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import SpaceId
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.costs import Prices, given_prices
from lowtide.engine.offload import greedy_choice
from lowtide.engine.offload.host_space import Link, find_link
from lowtide.engine.offload.joint_choice import Joint, solve_jointly
from lowtide.engine.offload.offload_search import OffloadSearch
from lowtide.engine.offload.offloadable import offloadable_buffers
from lowtide.engine.offload.timed_plan import TimedPlan, play, rerun_seconds
from lowtide.engine.plan import StepKind, verify
from lowtide.engine.recompute import BudgetSearch, Drops, Program, solver
from lowtide.engine.recompute.result import RecomputeResult, explain_shortfall
from lowtide.engine.recompute.within_budget import checked_cost

_GREEDY_PART = 12
"""Choices without the solver may play one in so many of all accesses."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OffloadResult(RecomputeResult):
    """A verified plan that runs ops again and offloads buffers to the host, with its slow-down in seconds.

    `extra_cost` is the slow-down of the plan's timeline: what runs again and what waits. `drops` are those of
    the plan without copies, to start another search from.
    """

    rerun_seconds: float
    """What runs again."""
    stall_seconds: float
    """How long compute waits for copies."""
    hidden_seconds: float
    """Transfer time during which compute is busy too."""
    offloaded_bytes: int
    """What is copied to the host."""


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
    alone: RecomputeResult | None = None,
) -> OffloadResult:
    """Return a verified plan of least slow-down whose peak in a memory space is within the budget.

    `order` is the order of first executions, `prices` what every op takes (default: the graph's own costs), `host` the
    space that buffers are offloaded to (default: the first that copies go to and come from). `alone`, where known, is
    what `recompute.plan_within_budget` gave for the same order, budget, prices and space. Slow-down is by the plan's
    timeline. The best of many plans is kept, those of one technique alone among them; if nothing can be offloaded, that
    is recomputation alone. Deterministic: limits count work. Raises UsageError for a budget below zero, another
    technique, bad prices, or a host that is no other memory space.
    """
    graph = problem.graph
    if unknown := sorted(set(allow) - NEED_BUDGET):
        raise UsageError(f"cannot allow {unknown[0]!r} here; choose among recompute and offload")
    if host is not None and (host == space or not 0 <= host < len(graph.spaces)):
        raise UsageError(f"memory space {host} is no host; name another one than {space} of the {len(graph.spaces)}")
    prices = prices or given_prices(graph)
    program = Program(problem, order, checked_cost(problem, prices.seconds), space)
    alone = alone or BudgetSearch(program).plan(budget_bytes, RECOMPUTE_EFFORTS[effort], exact=exact)
    link = find_link(graph, space, host) if "offload" in allow else None
    untouched = program.execute(Drops())
    plans = [program.plan(untouched), *([alone.plan] if "recompute" in allow else [])]
    played = [play(graph, plan, prices, space, budget_bytes, None) for plan in plans]
    best = min(played, key=lambda plan: plan.rank)
    joint = Joint()
    if link is not None and best.over_bytes + best.timeline.extra_seconds > 0:
        room = _room_on_host(program, best, link)
        search = OffloadSearch(program, budget_bytes, prices, link, best)
        offloadable = offloadable_buffers(program)
        choices = list(greedy_choice.choices(program, program.execute(alone.drops), untouched, link, room))
        if int(graph.sizes[offloadable].sum()) <= room:
            choices.append(offloadable)
        for rerun in (False, True) if "recompute" in allow else (False,):
            limit = search.played + RECOMPUTE_EFFORTS[effort].play_work // _GREEDY_PART
            for choice in choices:
                if search.played < limit:
                    search.try_choice(choice, rerun=rerun, play_work=limit - search.played)
        if exact and solver.is_available() and alone.floor.peak_bytes <= budget_bytes:
            joint = solve_jointly(search, RECOMPUTE_EFFORTS[effort], rerun="recompute" in allow)
        best = search.best
    return _result(program, alone, best, prices, link, joint)


def _room_on_host(program: Program, best: TimedPlan, link: Link) -> int:
    """Return how many more bytes the host holds."""
    graph = program.problem.graph
    host = graph.spaces[link.host]
    if host.capacity_bytes is None:
        return int(graph.sizes.sum())
    return max(0, host.capacity_bytes - best.peaks[host.name] - graph.persistent_bytes()[host.name])


def _result(
    program: Program, alone: RecomputeResult, best: TimedPlan, prices: Prices, link: Link | None, joint: Joint
) -> OffloadResult:
    graph = program.problem.graph
    verify(graph, best.plan, check_capacity=False)
    fits, peak = best.over_bytes == 0, best.peaks[graph.spaces[program.space].name]
    copied = int(graph.sizes[best.plan.targets[best.plan.kinds == StepKind.COPY_OUT]].sum())
    bound = alone.extra_cost_bound
    if link is not None and alone.floor.peak_bytes <= alone.budget_bytes:
        bound = min(joint.bound, best.timeline.extra_seconds) if fits else joint.bound
    return OffloadResult(
        plan=best.plan,
        drops=alone.drops,
        budget_bytes=alone.budget_bytes,
        peak_bytes=peak,
        fits=fits,
        base_cost=best.timeline.base_seconds,
        extra_cost=best.timeline.extra_seconds,
        extra_cost_bound=bound,
        floor=alone.floor,
        peak_bound=alone.floor.peak_bytes,
        method=alone.method,
        work=alone.work + joint.work,
        places=joint.places or alone.places,
        shortfall=None if fits else explain_shortfall(program, alone.floor, alone.budget_bytes, peak, bound),
        rerun_seconds=rerun_seconds(prices, best.plan),
        stall_seconds=best.timeline.stall_seconds,
        hidden_seconds=best.timeline.hidden_seconds,
        offloaded_bytes=copied,
    )
