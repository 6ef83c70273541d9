"""Offload and recomputation within a budget."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from lowtide.core.effort import DEFAULT_EFFORT, RECOMPUTE_EFFORTS, EffortName
from lowtide.core.errors import UsageError
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.costs import Prices, given_prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload.host_space import Link, find_link
from lowtide.engine.offload.joint_model import JointModel, JointModelBuilder, JointResult, solve_jointly
from lowtide.engine.offload.offload_search import OffloadSearch, TimedPlan, rerun_seconds, timed_plan
from lowtide.engine.offload.offloadable import greedy_choices, offloadable_buffers
from lowtide.engine.plan import StepKind, verify
from lowtide.engine.recompute import BudgetSearch, Drops, OrderedProgram, solver
from lowtide.engine.recompute.place_model import BuiltModel
from lowtide.engine.recompute.program import checked_cost
from lowtide.engine.recompute.prove_cost import ProvableCost, column_names
from lowtide.engine.recompute.result import RecomputeResult, explain_shortfall
from lowtide.engine.search.proof_of_cost import CostProof, Name

_WORTHWHILE = 0.01
"""In a step that waits for state, copies replace recomputed runs only if these take more than this share."""
_GREEDY_PART = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OffloadResult(RecomputeResult):
    """A verified plan with recomputation and offload; `extra_cost` in seconds, `drops` of the plan without copies."""

    rerun_seconds: float
    stall_seconds: float
    """Time that compute waits for copies."""
    hidden_seconds: float
    """Time of transfers while compute is busy."""
    offloaded_bytes: int


def plan_within_budget(
    problem: Problem,
    order: Order,
    budget_bytes: int,
    *,
    prices: Prices | None = None,
    allow: AbstractSet[str] = NEED_BUDGET,
    effort: EffortName = DEFAULT_EFFORT,
    exact: bool = True,
    recomputed: RecomputeResult | None = None,
) -> OffloadResult:
    """Return a verified plan of low slow-down with its peak in the first memory space within the budget.

    `order` is the order of first runs, `prices` gives the seconds per op (default: the graph's). No space grows beyond
    its capacity, unless the program itself needs more. Deterministic. Raises UsageError for a negative budget, another
    technique, or bad prices.
    """
    graph = problem.graph
    if unknown := sorted(set(allow) - NEED_BUDGET):
        raise UsageError(f"cannot allow {unknown[0]!r} here; allow recompute or offload")
    prices = prices or given_prices(graph)
    program = OrderedProgram(problem, order, checked_cost(problem, prices.seconds))
    recomputed = recomputed or BudgetSearch(program).plan(budget_bytes, RECOMPUTE_EFFORTS[effort], exact=exact)
    link = find_link(graph, 0) if "offload" in allow else None
    baseline = program.execute(Drops())
    best = timed_plan(graph, program.plan(baseline), prices, budget_bytes, {})
    elsewhere = _limits_elsewhere(graph, best.peaks)
    if "recompute" in allow:
        alone = timed_plan(graph, recomputed.plan, prices, budget_bytes, elsewhere)
        best = alone if alone.beats(best) else best
    joint = JointResult()
    recomputed_seconds = best.timeline.compute_seconds - best.timeline.base_seconds
    seconds = best.timeline.compute_seconds + best.timeline.stall_seconds
    worthwhile = _WORTHWHILE * seconds if graph.off_device.any() else 0.0
    if link is not None and (best.over_bytes or recomputed_seconds > worthwhile):
        room = _room_on_host(program, best, link)
        search = OffloadSearch(program, budget_bytes, prices, link, elsewhere, best)
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


def _limits_elsewhere(graph: Graph, needed: Mapping[str, int]) -> dict[str, int]:
    persistent = graph.persistent_bytes()
    return {
        space.name: max(space.capacity_bytes - persistent[space.name], needed[space.name])
        for space in graph.spaces[1:]
        if space.capacity_bytes is not None
    }


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
    fits, peak = best.over_bytes == 0, best.peaks[graph.spaces[0].name]
    copied = int(graph.sizes[best.plan.targets[best.plan.kinds == StepKind.COPY_OUT]].sum())
    bound, claimed = recomputed.extra_cost_bound, recomputed.solver_bound
    if link is not None and recomputed.floor.peak_bytes <= recomputed.budget_bytes:
        bound = min(joint.bound, best.timeline.extra_seconds) if fits else joint.bound
        claimed = joint.claimed_bound if joint.claimed_bound > bound else None
    return OffloadResult(
        plan=best.plan,
        drops=recomputed.drops,
        budget_bytes=recomputed.budget_bytes,
        peak_bytes=peak,
        fits=fits,
        base_cost=best.timeline.base_seconds,
        extra_cost=best.timeline.extra_seconds,
        extra_cost_bound=bound,
        solver_bound=claimed,
        provable_cost=recomputed.provable_cost if link is None else _provable(program, recomputed, joint, bound),
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


def _provable(
    program: OrderedProgram, recomputed: RecomputeResult, joint: JointResult, bound: float
) -> ProvableCost | None:
    if not joint.places:
        return None
    return ProvableCost(
        order=tuple(program.order.tolist()),
        costs=tuple(program.cost.tolist()),
        places=joint.places,
        budget_bytes=recomputed.budget_bytes,
        in_place=program.problem.in_place,
        at_least=bound if bound < float("inf") else None,
        seconds=joint.seconds,
    )


def prove_cost(cost: ProvableCost, graph: Graph) -> CostProof | None:
    """Return the proof of a bound, see `ProvableCost.prove`."""
    return cost.prove(graph, _build if cost.seconds else None)


def _build(cost: ProvableCost, program: OrderedProgram) -> tuple[BuiltModel, Mapping[int, Name]]:
    link = find_link(program.problem.graph, 0)
    if link is None:
        raise ValueError("a bound with copies needs a host")
    builder = JointModelBuilder(
        JointModel(program, link, np.asarray(cost.seconds)), cost.places, cost.budget_bytes, 1.0
    )
    built = builder.build()
    names = column_names(built)
    for k, columns in enumerate(builder.prefetches):
        names.update((column, ("back", k, buffer)) for buffer, column in columns.items())
    return built, names
