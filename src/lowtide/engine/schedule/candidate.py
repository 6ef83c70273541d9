"""Plans of graphs and their callees by one scheduler."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from lowtide.core.effort import DEFAULT_EFFORT, SEARCH_EFFORTS, EffortName
from lowtide.core.progress import Report
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.analysis.lower_bounds import LowerBound
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph
from lowtide.engine.graph.check import callee_order
from lowtide.engine.packing import Packing, pack_plan
from lowtide.engine.plan import Plan
from lowtide.engine.schedule.scheduler import Scheduler, compare_key
from lowtide.engine.schedule.search import Search
from lowtide.engine.schedule.table import scheduler
from lowtide.engine.search import Proof, Searched, equal_orders, fit_order

_MOST_ORDERS = 4
_MOST_OPS = 20_000
"""Packing larger graphs repeatedly takes too long."""


def settle_callees(graph: Graph, scheduler: Scheduler, *, in_place: bool = True) -> Problem:
    """Return the graph as a problem with a plan for every callee, made by this scheduler."""
    plans: dict[str, Plan] = {}
    for name in callee_order({name: inner.called for name, inner in graph.subgraphs.items()}):
        problem = _problem(graph.subgraphs[name], plans, in_place)
        plans[name] = plan_of_order(problem, scheduler.order(problem))
    return _problem(graph, plans, in_place)


def plan_graph(graph: Graph, scheduler: Scheduler, *, in_place: bool = True) -> Plan:
    """Return the plan of a graph and its callees, with `peak_bytes`."""
    problem = settle_callees(graph, scheduler, in_place=in_place)
    return plan_of_order(problem, scheduler.order(problem))


def plan_of_order(problem: Problem, order: Order) -> Plan:
    evaluation = problem.evaluate(order)
    plan = Plan.from_order(problem.graph, order, evaluation.pairs, problem.callees)
    return replace(plan, peak_bytes=problem.peak_bytes(evaluation))


def _problem(graph: Graph, plans: Mapping[str, Plan], in_place: bool) -> Problem:
    return Problem(graph, {name: plans[name] for name in graph.called}, in_place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The plan of one scheduler for one graph."""

    scheduler: str
    plan: Plan
    key: tuple[int, int]
    seconds: float
    bounds: tuple[LowerBound, ...] = ()
    solved: Searched | None = None
    packing: Packing | None = None
    interrupted: bool = False

    @property
    def proof(self) -> Proof | None:
        return None if self.solved is None else self.solved.proof


def make_candidate(
    name: str,
    graph: Graph,
    *,
    in_place: bool,
    effort: EffortName = DEFAULT_EFFORT,
    budget: Budget | None = None,
    progress: Report | None = None,
    keep: Callable[[Plan], None] | None = None,
) -> Candidate:
    """Plan a graph and its callees with the named scheduler; raises UsageError for an unknown name."""
    chosen = scheduler(name)
    started = time.perf_counter()
    if isinstance(chosen, Search):
        chosen = replace(chosen, effort=effort)
        problem = settle_callees(graph, chosen, in_place=in_place)

        def keep_order(order: Order) -> None:
            if keep is not None:
                keep(plan_of_order(problem, order))

        solution = chosen.solve(problem, budget=budget, progress=progress, keep=keep_order)
        solved = Searched(problem=problem, solution=solution, effort=SEARCH_EFFORTS[effort])
        plan, bounds, interrupted = plan_of_order(problem, solution.order), solution.bounds, solution.interrupted
    else:
        plan, bounds, interrupted = plan_graph(graph, chosen, in_place=in_place), (), False
        solved = None
    return Candidate(
        scheduler=name,
        plan=plan,
        key=compare_key(graph, plan.peak_bytes.values()),
        seconds=time.perf_counter() - started,
        bounds=bounds,
        solved=solved,
        interrupted=interrupted,
    )


def make_candidate_within(
    budget: Budget,
    graph: Graph,
    *,
    in_place: bool,
    effort: EffortName,
    progress: Report,
    keep: Callable[[Plan], None] | None = None,
) -> Candidate:
    """Plan a graph within a budget, moving few ops; if nothing fits, plan for the least peak."""
    started = time.perf_counter()
    progress(f"fitting {graph.n_ops} ops into the budget")
    problem = settle_callees(graph, Search(effort=effort), in_place=in_place)
    found = fit_order(problem, budget, problem.given_order(), SEARCH_EFFORTS[effort])
    if found.order is None:
        best = make_candidate(
            "search", graph, in_place=in_place, effort=effort, budget=budget, progress=progress, keep=keep
        )
        if best.interrupted or budget.excess_bytes(best.plan.peak_bytes):
            return best
        found = fit_order(problem, budget, problem.given_order(), SEARCH_EFFORTS[effort], known=[best.plan.order()])
        if found.order is None:
            return best
    plan = plan_of_order(problem, found.order)
    return Candidate(
        scheduler="fit",
        plan=plan,
        key=compare_key(graph, plan.peak_bytes.values()),
        seconds=time.perf_counter() - started,
    )


def with_least_arena(candidate: Candidate) -> Candidate:
    """Return the candidate with the smallest arena among up to four orders of its peak, with its packing."""
    if candidate.solved is None or candidate.interrupted:
        return candidate
    problem, solution = candidate.solved.problem, candidate.solved.solution
    if problem.graph.n_ops > _MOST_OPS:
        return candidate
    best = candidate
    try:
        packing = _pack(problem, candidate.plan)
        best = replace(candidate, packing=packing)
        for order in islice(equal_orders(problem, solution, _MOST_ORDERS), 1, None):
            if packing.total_bytes <= sum(best.plan.peak_bytes.values()):
                break
            plan = plan_of_order(problem, order)
            other = _pack(problem, plan)
            if other.total_bytes < packing.total_bytes:
                key = compare_key(problem.graph, plan.peak_bytes.values())
                best, packing = replace(candidate, plan=plan, key=key, packing=other), other
    except KeyboardInterrupt:
        return replace(best, interrupted=True)
    return best


def _pack(problem: Problem, plan: Plan) -> Packing:
    packing = pack_plan(problem.graph, plan, problem.transient, effort="fast")
    if packing.interrupted:
        raise KeyboardInterrupt
    return packing
