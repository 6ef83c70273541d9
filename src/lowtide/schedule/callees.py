"""Plan a graph and everything it calls."""

from dataclasses import replace

from lowtide.analysis import Problem
from lowtide.graph import Graph
from lowtide.graph.check import callee_order
from lowtide.plan import Plan
from lowtide.schedule.scheduler import Scheduler


def plan_graph(graph: Graph, scheduler: Scheduler, *, in_place: bool = True) -> Plan:
    """Return the plan of a graph with all of its callees planned inside-out by the same scheduler.

    Every callee is ordered once, before its callers, and its own peak counts while they run it. `peak_bytes` of the
    plan and of every plan in `Plan.callees` is set; `in_place` allows the optional in-place pairs everywhere.
    Complexity: that of the scheduler, once per graph, plus O(n + e).
    """
    plans: dict[str, Plan] = {}
    for name in callee_order({name: _called(inner) for name, inner in graph.subgraphs.items()}):
        plans[name] = _plan_one(graph.subgraphs[name], scheduler, plans, in_place)
    return _plan_one(graph, scheduler, plans, in_place)


def _called(graph: Graph) -> list[str]:
    return list(dict.fromkeys(name for names in graph.callees for name in names))


def _plan_one(graph: Graph, scheduler: Scheduler, plans: dict[str, Plan], in_place: bool) -> Plan:
    callees = {name: plans[name] for name in _called(graph)}
    problem = Problem(graph, callees, in_place)
    order = scheduler.order(problem)
    evaluation = problem.evaluate(order)
    plan = Plan.from_order(graph, order, evaluation.pairs, callees)
    return replace(plan, peak_bytes=problem.peak_bytes(evaluation))
