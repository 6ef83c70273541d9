"""Base orders of larger graphs: compared, the gap of the best one closed, and the order of its runs the next base."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.analysis.budget import Budget
from lowtide.analysis.problem import Order, Problem
from lowtide.effort import RECOMPUTE_EFFORTS, SEARCH_EFFORTS, EffortName
from lowtide.index_spaces import SpaceId
from lowtide.progress import Report
from lowtide.recompute.budget_search import BudgetSearch
from lowtide.recompute.found import Found
from lowtide.recompute.frees_early import frees_early
from lowtide.recompute.program import Ints, Program
from lowtide.recompute.result import RecomputeResult
from lowtide.recompute.unrolled import first_runs, unroll
from lowtide.search import solve

_MOST_TURNS = 3
_WORTH_SETTLING = 1.1
"""What plans of drops may cost in an order, as a multiple of the cheapest, for its plans of runs to be looked for."""


@dataclass(slots=True, eq=False)
class _Attempt:
    """What is known of one base order."""

    name: str
    search: BudgetSearch
    found: Found

    @property
    def rank(self) -> tuple[int, float, int]:
        """What attempts are compared by, less is better: bytes over the budget, then cost, then peak."""
        return self.found.rank(self.found.execution)

    @property
    def cost(self) -> float:
        """Extra cost of the best plan, infinite where it does not fit."""
        return self.found.execution.extra_cost if self.found.fits else float("inf")

    def is_worth_settling(self, best: tuple[int, float, int]) -> bool:
        """Tell whether plans of runs in this order may turn out cheapest; `best` is the best rank of plans of drops."""
        return best[0] > 0 or self.cost <= _WORTH_SETTLING * best[1]


def plan_over_base_orders(
    problem: Problem,
    orders: Sequence[tuple[str, Order]],
    budget_bytes: int,
    cost: NDArray[np.float64],
    *,
    space: SpaceId,
    reorder: bool,
    effort: EffortName,
    report: Report,
) -> tuple[RecomputeResult, str, Order]:
    """Return the cheapest plan that starts from one of the named base orders, with bounds for its own order.

    Plans of drops are made for all orders, plans of runs for those that are near the cheapest; the best order goes
    through the exact part. Then, with `reorder`, the plan's runs become a graph in which reruns are ordinary ops, and
    the order search orders that graph. Its order of first runs is the next base, as long as that lowers the cost.
    Returns the result with the name of its base order, which says how often it was ordered anew, and that order.
    """
    limits = RECOMPUTE_EFFORTS[effort]

    def attempt(name: str, order: Order) -> _Attempt:
        search = BudgetSearch(Program(problem, order, cost, space))
        return _Attempt(name, search, search.begin(budget_bytes, limits, exact=True))

    attempts: list[_Attempt] = []
    for name, order in _with_early_frees(problem, orders) if reorder else orders:
        report(f"choosing what runs again ({name})")
        attempts.append(attempt(name, order))
    least = min(known.rank for known in attempts)
    for known in attempts:
        if known.is_worth_settling(least):
            report(f"choosing what runs again ({known.name}, run by run)")
            known.search.settle(known.found, limits)
    best = last = min(attempts, key=lambda known: known.rank)
    quickest = best.rank
    report(f"closing the gap ({best.name})")
    best.search.close_gap(best.found, limits)
    again: EffortName = "max" if effort == "max" else "fast"  # further turns seldom pay for as much work as the first
    for _ in range(_MOST_TURNS if reorder and best.cost > 0 else 0):
        report("ordering what runs again")
        runs = _reordered(last, again, budget_bytes)
        order = first_runs(runs.tolist())
        if np.array_equal(order, last.search.program.order):
            break
        turn = attempt(f"{last.name} + rerun order", order)
        turn.search.offer_runs(turn.found, runs, limits)
        if turn.is_worth_settling(least):
            is_close = best.found.is_within(limits.relative_gap)
            turn.search.settle(turn.found, replace(limits, run_work=limits.run_work // (2 if is_close else 1)))
        if turn.rank >= quickest:
            break
        quickest = turn.rank
        turn.search.close_gap(turn.found, RECOMPUTE_EFFORTS[again])
        if turn.rank >= last.rank:
            break
        last = turn
        if turn.rank[:2] < best.rank[:2]:
            best = turn
    return best.search.result(best.found, exact=True), best.name, best.search.program.order


def _with_early_frees(problem: Problem, orders: Sequence[tuple[str, Order]]) -> list[tuple[str, Order]]:
    """Return named orders, and those that free early from each, without what is there already."""
    known: list[tuple[str, Order]] = []
    early = [(f"{name} + early frees", frees_early(problem, order)) for name, order in orders]
    for name, order in (*orders, *early):
        if not any(np.array_equal(order, other) for _, other in known):
            known.append((name, order))
    return known


def _reordered(known: _Attempt, effort: EffortName, budget: int) -> Ints:
    """Return the plan's runs in the best order."""
    program = known.search.program
    problem = program.problem
    unrolled = unroll(problem, known.found.execution.runs.tolist())
    inner = Problem(unrolled.graph, in_place=problem.in_place)
    limits = [budget if number == program.space else None for number in range(len(problem.graph.spaces))]
    within = Budget.of_limits(problem.graph, limits)
    solution = solve(inner, [inner.given_order()], SEARCH_EFFORTS[effort], budget=within)
    return np.asarray(unrolled.runs(solution.order), np.int32)
