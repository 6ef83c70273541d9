"""Plans for tests, made from orders, with the peaks of callees filled in."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lowtide.engine.analysis import Problem, simulate
from lowtide.engine.graph import Graph
from lowtide.engine.packing.plan_addresses import pack_plan
from lowtide.engine.plan import Plan


def problem_of(graph: Graph, *, in_place: bool = True) -> Problem:
    """Return the ordering problem of a graph whose callees run in their program order."""
    return Problem(graph, callee_plans(graph), in_place)


def callee_plans(graph: Graph) -> Mapping[str, Plan]:
    """Return the program order of every callee that an op calls, with its peak."""
    plans: dict[str, Plan] = {}
    for name in dict.fromkeys(name for names in graph.callees for name in names):
        baseline = Plan.baseline(graph.subgraphs[name])
        baseline = replace(baseline, callees=callee_plans(graph.subgraphs[name]))
        plans[name] = replace(baseline, peak_bytes=simulate(graph.subgraphs[name], baseline).peak_bytes)
    return plans


def plan_of(graph: Graph, order: Sequence[int]) -> Plan:
    """Return the plan of an order, in-place pairs taken, with its peak claimed and everything given an address."""
    problem = problem_of(graph)
    return claim(graph, problem.plan(np.asarray(order, np.int32)))


def claim(graph: Graph, plan: Plan) -> Plan:
    """Return a plan with its peak, a bound of zero, addresses and the arena they need."""
    peaks = simulate(graph, plan).peak_bytes
    packing = pack_plan(graph, plan, problem_of(graph).transient)
    return plan.with_claims(
        status="feasible",
        peak_bytes=peaks,
        lower_bound_bytes=dict.fromkeys(peaks, 0),
        arena_bytes=packing.arena_bytes,
        addresses=packing.addresses,
    )
