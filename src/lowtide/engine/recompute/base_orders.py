"""Base orders of larger graphs: compared, the gap of the best one closed, and the order of its runs the next base."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import RECOMPUTE_EFFORTS, SEARCH_EFFORTS, EffortName, RecomputeEffort
from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import SpaceId
from lowtide.core.progress import Report
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.plan import Plan
from lowtide.engine.recompute.budget_search import BudgetSearch
from lowtide.engine.recompute.found import Found
from lowtide.engine.recompute.frees_early import frees_early
from lowtide.engine.recompute.lower_sections import lower_sections
from lowtide.engine.recompute.program import Ints, Program
from lowtide.engine.recompute.result import RecomputeResult
from lowtide.engine.recompute.unrolled import first_runs, unroll
from lowtide.engine.search import solve

_MOST_TURNS = 3
_WORTH_SETTLING = 1.1
"""What plans of drops may cost in an order, as a multiple of the cheapest, for its plans of runs to be looked for."""
_WORTH_CLOSING = 1.25
"""The same of a family of orders beside another one, for its best to be improved."""


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

    def is_near(self, best: tuple[int, float, int], factor: float) -> bool:
        """Tell whether more work in this order may give the cheapest plan; `best` is the best rank so far."""
        return best[0] > 0 or self.cost <= factor * best[1]


def plan_over_base_orders(
    problem: Problem,
    orders: Sequence[tuple[str, Order]],
    budget_bytes: int,
    cost: NDArray[np.float64],
    *,
    space: SpaceId,
    reorder: bool,
    effort: EffortName,
    exact: bool,
    report: Report,
    keep: Callable[[Plan], None] | None = None,
    negligible: float = 0.0,
) -> tuple[RecomputeResult, str, Order]:
    """Return the cheapest plan that starts from one of the named base orders, with bounds for its own order.

    With `reorder`, orders that free early are a family beside the given ones, which then come with their sections
    lowered too. In each, plans of drops are made for all orders, plans of runs for those that are near the cheapest;
    the best order goes through the exact part, unless the other family has found something much cheaper, or something
    cheaper that is near its bound. Where a plan is near its bound, the exact part waits for the last order of its runs.
    Then the plan's runs become a graph in which reruns are ordinary ops,
    and the order search orders that graph. Its order of first runs is the next base, as long as that lowers the cost.
    Returns the result with the name of its base order, which says how often it was ordered anew, and that order. `keep`
    is handed the best plan so far wherever a better one was found. An extra cost of `negligible` above its bound is
    good enough, as a share of the time of running every op once.
    """
    search = _OrderSearch(problem, budget_bytes, cost, space, reorder, effort, exact, report, keep, negligible)
    best: _Attempt | None = None
    for family in search.families(orders):
        best = search.best_of(family, best)
        if best is not None and (best.cost == 0 or best.found.is_of_layers):
            break
    if best is None:
        raise UsageError("there is no base order to plan; give one")
    best.search.bound_more(best.found, RECOMPUTE_EFFORTS[effort], exact=exact)
    return best.search.result(best.found, exact=exact), best.name, best.search.program.order


@dataclass(frozen=True, slots=True, eq=False)
class _OrderSearch:
    """The search over base orders for one budget."""

    problem: Problem
    budget: int
    cost: NDArray[np.float64]
    space: SpaceId
    reorder: bool
    effort: EffortName
    exact: bool
    report: Report
    keep: Callable[[Plan], None] | None
    negligible: float
    _kept: list[tuple[int, float, int]] = field(default_factory=list[tuple[int, float, int]])
    """The rank of the plan that was kept last."""

    def families(self, orders: Sequence[tuple[str, Order]]) -> Iterator[Iterable[tuple[str, Order]]]:
        """Yield the families of base orders of some named ones; orders are made when they are asked for."""
        if self.reorder:
            yield _freeing_early(self.problem, orders)
            yield self.with_lower_sections(orders)
        else:
            yield orders

    def with_lower_sections(self, orders: Sequence[tuple[str, Order]]) -> list[tuple[str, Order]]:
        """Return some named orders, and those of them that need less in some section above the budget."""
        lower: list[tuple[str, Order]] = []
        for name, order in orders:
            program = Program(self.problem, order, self.cost, self.space)
            lower.append((f"{name} + lower sections", lower_sections(program, self.budget, SEARCH_EFFORTS["fast"])))
        return list(_distinct([*orders, *lower]))

    def best_of(self, orders: Iterable[tuple[str, Order]], known: _Attempt | None) -> _Attempt | None:
        """Return the best attempt at some orders, or the one known so far where that is better or there are none."""
        limits = RECOMPUTE_EFFORTS[self.effort]
        attempts: list[_Attempt] = []
        for name, order in orders:
            self.report(f"choosing what runs again ({name})")
            attempts.append(self._attempt(name, order, limits))
            self._keep(attempts[-1])
            if attempts[-1].cost == 0:
                return attempts[-1]
            if attempts[-1].found.is_of_layers:
                break
        if not attempts:
            return known
        least = min(attempt.rank for attempt in attempts)
        is_near = known is not None and _is_near_its_bound(known, limits)
        for attempt in attempts:
            if attempt.is_near(least, 1.0 if is_near else _WORTH_SETTLING):
                self.report(f"choosing what runs again ({attempt.name}, run by run)")
                attempt.search.settle(attempt.found, limits)
                self._keep(attempt)
        best = min(attempts, key=lambda attempt: attempt.rank)
        if known is not None and known.rank <= best.rank and (is_near or not best.is_near(known.rank, _WORTH_CLOSING)):
            return known
        best = self._improved(best, least, limits)
        return best if known is None or best.rank < known.rank else known

    def _attempt(self, name: str, order: Order, limits: RecomputeEffort) -> _Attempt:
        search = BudgetSearch(Program(self.problem, order, self.cost, self.space), self.negligible)
        return _Attempt(name, search, search.begin(self.budget, limits, exact=self.exact))

    def _keep(self, attempt: _Attempt) -> None:
        """Hand on the plan of an attempt where it is better than what was handed on before."""
        if self.keep is not None and (not self._kept or attempt.rank < self._kept[0]):
            self._kept[:] = [attempt.rank]
            self.keep(attempt.search.program.plan(attempt.found.execution))

    def _improved(self, best: _Attempt, least: tuple[int, float, int], limits: RecomputeEffort) -> _Attempt:
        """Return what the exact part and other orders of its runs make of an attempt."""
        last, quickest = best, best.rank
        closes_last = self.exact and _is_near_its_bound(best, limits)
        if self.exact and not closes_last:
            self._close(best, limits)
        # Further turns seldom pay for as much work as the first.
        again: EffortName = "max" if self.effort == "max" else "fast"
        is_done = best.cost == 0 or best.found.is_of_layers
        for _ in range(_MOST_TURNS if self.reorder and not is_done else 0):
            self.report("ordering what runs again")
            runs = _reordered(last, again, self.budget)
            order = first_runs(runs.tolist())
            if np.array_equal(order, last.search.program.order):
                break
            turn = self._attempt(f"{last.name} + rerun order", order, limits)
            as_ordered = turn.search.plan_of_runs(runs, turn.found, limits)
            if as_ordered.rank(as_ordered.execution)[:2] < best.rank[:2]:
                best = _Attempt(turn.name, turn.search, as_ordered)
            if turn.is_near(least, _WORTH_SETTLING):
                is_close = best.found.is_within(limits.relative_gap)
                turn.search.settle(turn.found, replace(limits, run_work=limits.run_work // (2 if is_close else 1)))
            if turn.rank >= quickest:
                break
            quickest = turn.rank
            if self.exact and not closes_last:
                turn.search.close_gap(turn.found, RECOMPUTE_EFFORTS[again])
                if best.search is turn.search:
                    best.found.learn(turn.found)
            if turn.rank >= last.rank:
                break
            last = turn
            if turn.rank[:2] < best.rank[:2]:
                best = turn
            self._keep(best)
        if closes_last:
            self._close(best, replace(limits, solver_work=limits.solver_work // 2))
        return best

    def _close(self, attempt: _Attempt, limits: RecomputeEffort) -> None:
        """Let the exact part improve an attempt."""
        self.report(f"closing the gap ({attempt.name})")
        attempt.search.close_gap(attempt.found, limits)
        self._keep(attempt)


def _is_near_its_bound(attempt: _Attempt, limits: RecomputeEffort) -> bool:
    return limits.near_gap is not None and attempt.found.is_within(limits.near_gap)


def _freeing_early(problem: Problem, orders: Sequence[tuple[str, Order]]) -> Iterator[tuple[str, Order]]:
    """Yield the orders that free early from each of some named ones, without what is there already."""
    given = {name for name, _ in orders}
    early = ((f"{name} + early frees", frees_early(problem, order)) for name, order in orders)
    return ((name, order) for name, order in _distinct(chain(orders, early)) if name not in given)


def _distinct(orders: Iterable[tuple[str, Order]]) -> Iterator[tuple[str, Order]]:
    """Yield named orders, each once, by its first name."""
    known: set[bytes] = set()
    for name, order in orders:
        key = order.tobytes()
        if key not in known:
            known.add(key)
            yield name, order


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
