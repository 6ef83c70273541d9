"""The budgeted planner: the least extra cost within a byte budget, with proof of how close it is."""

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import DEFAULT_EFFORT, RECOMPUTE_EFFORTS, EffortName
from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.plan import verify
from lowtide.engine.recompute.budget_search import BudgetSearch
from lowtide.engine.recompute.program import Program
from lowtide.engine.recompute.result import RecomputeResult


def plan_within_budget(
    problem: Problem,
    order: Order,
    budget_bytes: int,
    *,
    cost: NDArray[np.float64] | None = None,
    space: SpaceId = 0,
    effort: EffortName = DEFAULT_EFFORT,
    exact: bool = True,
) -> RecomputeResult:
    """Return a verified plan of least extra cost whose peak is within the budget, and a bound on that cost.

    `order` is the order of first executions, `cost` what running an op again costs (default: the ops' own costs),
    `budget_bytes` the most live bytes in memory space `space`, persistent buffers left out. A greedy plan comes first.
    With `exact` and HiGHS (extra "exact"), a mixed-integer program over the places where memory is short follows
    (`place_model`): its bound holds for every plan, its solution is played, and if that needs more than the budget
    somewhere, that place is counted too. Deterministic: limits count work.
    Raises UsageError for a budget below zero or costs that are negative, not finite or not one per op.
    """
    program = Program(problem, order, checked_cost(problem, cost), space)
    result = BudgetSearch(program).plan(budget_bytes, RECOMPUTE_EFFORTS[effort], exact=exact)
    verify(problem.graph, result.plan, check_capacity=False)
    return result


def checked_cost(problem: Problem, cost: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return costs as the kernels take them, the graph's own by default."""
    costs = np.ascontiguousarray(problem.graph.cost if cost is None else cost, np.float64)
    if costs.shape != (problem.graph.n_ops,):
        raise UsageError(f"costs have shape {costs.shape}; give one for each of the {problem.graph.n_ops} ops")
    if not (np.isfinite(costs) & (costs >= 0)).all():
        op = int(np.argmin(np.isfinite(costs) & (costs >= 0)))
        raise UsageError(f"op {problem.graph.op_names[op]!r} has cost {costs[op]}; costs are finite and not below zero")
    return costs
