"""Among orders of equal peak, the one whose buffers can be placed most tightly."""

from dataclasses import replace
from itertools import islice

from lowtide.engine.analysis import Problem
from lowtide.engine.packing import Packing, pack_plan
from lowtide.engine.plan import Plan
from lowtide.engine.schedule.callees import plan_of_order
from lowtide.engine.schedule.candidate import Candidate
from lowtide.engine.schedule.compare import compare_key
from lowtide.engine.search import equal_orders

_MOST_ORDERS = 4
_MOST_OPS = 20_000
"""Placing the buffers of larger graphs takes too long to do it several times."""


def with_least_arena(candidate: Candidate) -> Candidate:
    """Return the candidate with the least arena among up to four orders of its peak, with the packing of that plan.

    Where no search was done, nothing is tried. Where the arena is as small as the peak, which it cannot be below,
    nothing more is tried. Ctrl-C ends it with the best so far, marked interrupted.
    """
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
