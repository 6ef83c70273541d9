"""Plan a graph and everything it calls."""

from collections.abc import Mapping
from dataclasses import replace

from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph
from lowtide.engine.graph.check import callee_order
from lowtide.engine.plan import Plan
from lowtide.engine.schedule.scheduler import Scheduler


def settle_callees(graph: Graph, scheduler: Scheduler, *, in_place: bool = True) -> Problem:
    """Return the graph as a problem whose callees are all planned, inside-out, by this scheduler.

    Every callee is ordered once, before its callers; its own peak counts while they run it. Every plan in
    `Problem.callees` has its `peak_bytes`. `in_place` allows the optional in-place pairs, in callees too.
    Complexity: that of the scheduler, once per callee, plus O(n + e).
    """
    plans: dict[str, Plan] = {}
    for name in callee_order({name: inner.called for name, inner in graph.subgraphs.items()}):
        problem = _problem(graph.subgraphs[name], plans, in_place)
        plans[name] = plan_of_order(problem, scheduler.order(problem))
    return _problem(graph, plans, in_place)


def plan_graph(graph: Graph, scheduler: Scheduler, *, in_place: bool = True) -> Plan:
    """Return the plan of a graph with all of its callees, see `settle_callees`; its `peak_bytes` are set."""
    problem = settle_callees(graph, scheduler, in_place=in_place)
    return plan_of_order(problem, scheduler.order(problem))


def plan_of_order(problem: Problem, order: Order) -> Plan:
    """Return the plan that runs an order with the in-place pairs of its evaluation; its `peak_bytes` are set."""
    evaluation = problem.evaluate(order)
    plan = Plan.from_order(problem.graph, order, evaluation.pairs, problem.callees)
    return replace(plan, peak_bytes=problem.peak_bytes(evaluation))


def _problem(graph: Graph, plans: Mapping[str, Plan], in_place: bool) -> Problem:
    return Problem(graph, {name: plans[name] for name in graph.called}, in_place)
