"""Fit mode: an order within a budget that moves few ops."""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from lowtide import _native
from lowtide.core.effort import SearchEffort
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.analysis.lower_bounds import LowerBound, bytes_at_the_edges
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.search.cuts import ClosureCuts, run_after_cut
from lowtide.engine.search.fit import Fit, FitOutcome, find_fit
from lowtide.engine.search.moves import bring_nearer, moved_ops
from lowtide.engine.search.plain_program import PlainProgram

_MAX_EXAMINED, _WORK_PER_EXAMINED = 300_000, 1_000
_MOST_OPS_BY_MOVES = 1_000
_MOST_TRIES = 2_000
_MOST_CUT = 200
_MOST_REPAIRED = 40
_TRY_WORK = 500
_State = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedOrder:
    """Result of `fit_order`."""

    fit: Fit
    order: Order | None = None
    moved: int = 0
    """Ops outside a longest common subsequence with the given order."""
    least_moved: int = 0
    """Lower bound; equal to `moved` if proven minimal."""
    reason: LowerBound | None = None
    """If impossible: the op or edges over the budget in every order; None if only exact search refuted it."""
    refuted: FitOutcome | None = None


def fit_order(
    problem: Problem, budget: Budget, given: Order, effort: SearchEffort, *, known: Iterable[Order] = ()
) -> FittedOrder:
    """Return an order within a budget that moves few ops of `given`, or prove that there is none.

    Few moves are found exactly (`fewest_moves`). Deterministic. Ctrl-C raises KeyboardInterrupt until some order fits,
    then returns the best order found.
    """
    checks = _BudgetChecks(problem, budget)
    if checks.fits(given):
        return FittedOrder(fit=Fit.FOUND, order=given)
    cuts = ClosureCuts(problem)
    reason = checks.reason(given, cuts, effort.cut_work)
    if reason is not None:
        return FittedOrder(fit=Fit.IMPOSSIBLE, reason=reason)
    max_examined = min(_MAX_EXAMINED, effort.fit_work // _WORK_PER_EXAMINED) if len(given) <= _MOST_OPS_BY_MOVES else 0
    nearest, least_moved = fewest_moves(problem, budget, given, max_examined)
    if nearest is not None:
        return FittedOrder(fit=Fit.FOUND, order=nearest, moved=least_moved, least_moved=least_moved)
    start = _repair(checks, given, cuts, effort.cut_work)
    starts = [order for order in (start, *known) if order is not None and checks.fits(order)]
    if not starts:
        outcome = find_fit(problem, budget.limits, given, effort.fit_work)
        if outcome.fit != Fit.FOUND or outcome.order is None:
            return FittedOrder(fit=outcome.fit, refuted=outcome if outcome.fit == Fit.IMPOSSIBLE else None)
        starts.append(outcome.order)
    best = min(starts, key=lambda order: len(moved_ops(order, given)))
    best = checks.nearest(best, given, effort.fit_work)
    moved = len(moved_ops(best, given))
    return FittedOrder(fit=Fit.FOUND, order=best, moved=moved, least_moved=max(1, least_moved))


class _BudgetChecks:
    def __init__(self, problem: Problem, budget: Budget) -> None:
        self.problem = problem
        self.limits = np.asarray(budget.limits, np.int64)

    def fits(self, order: Order) -> bool:
        return bool((self.problem.evaluate(order).peaks <= self.limits).all())

    def excess(self, order: Order) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        profile = _native.profile(self.problem.native, order, self.problem.in_place)
        return np.maximum(profile.reshape(len(order), len(self.limits)) - self.limits, 0)

    def reason(self, order: Order, cuts: ClosureCuts, most_work: int) -> LowerBound | None:
        graph = self.problem.graph
        excess = self.excess(order)
        for space, most in enumerate(self.limits.tolist()):
            name = graph.spaces[space].name
            edges = bytes_at_the_edges(graph, space)
            if edges > most:
                return LowerBound(space=name, peak_bytes=edges, op=None)
            worst = np.argsort(-excess[:, space], kind="stable")[: np.count_nonzero(excess[:, space])]
            for op in order[worst[:_MOST_CUT]].tolist():
                if cuts.work >= most_work:
                    return None
                cut = cuts.of(op, space)
                if cut.peak_bytes > most:
                    return LowerBound(space=name, peak_bytes=cut.peak_bytes, op=op, before=cut.before)
        return None

    def nearest(self, order: Order, given: Order, most_work: int) -> Order:
        best = [order]

        def keep(nearer: Order) -> bool:
            if not self.fits(nearer):
                return False
            best[0] = nearer
            return True

        tries = min(_MOST_TRIES, most_work // (_TRY_WORK * max(1, len(order))))
        try:
            return bring_nearer(self.problem, order, given, keep, tries)
        except KeyboardInterrupt:
            return best[0]


def _repair(checks: _BudgetChecks, given: Order, cuts: ClosureCuts, most_work: int) -> Order | None:
    order, excess = given, checks.excess(given)
    tries = 0
    while excess.any():
        for place, space in np.argwhere(excess > 0)[:_MOST_REPAIRED].tolist():
            tries += 1
            if cuts.work + tries * _TRY_WORK * len(order) >= most_work:
                return None
            moved = run_after_cut(order, place, cuts.of(int(order[place]), space))
            now = checks.excess(moved)
            if now.sum() < excess.sum():
                order, excess = moved, now
                break
        else:
            return None
    return order


def fewest_moves(problem: Problem, budget: Budget, given: Order, max_examined: int) -> tuple[Order | None, int]:
    """Return the order within a budget that moves the fewest ops, if found, and a lower bound of moved ops.

    Dijkstra over executed sets and the last unmoved op. Stops after about `max_examined` examined ops.
    """
    limits = budget.limits
    spaces = range(len(limits))
    programs = [PlainProgram(problem.graph, problem.transient, problem.in_place, space) for space in spaces]
    order = given.tolist()
    everything = (1 << len(order)) - 1
    start: _State = (0, -1)
    live_at_start = tuple(program.live_at_start(unused=False) for program in programs)
    came_from: dict[_State, tuple[_State, int]] = {}
    least: dict[_State, int] = {start: 0}
    waiting: list[tuple[int, int, int, _State, tuple[int, ...]]] = [(0, 0, 0, start, live_at_start)]
    examined = pushed = moved = 0
    while waiting and examined <= max_examined:
        moved, _, _, state, live = heappop(waiting)
        executed, last = state
        if executed == everything:
            return _path(came_from, state), moved
        if moved > least[state]:
            continue
        examined += len(order)
        overtaken = 0
        for place, op in enumerate(order):
            if not programs[0].may_run(op, executed):
                overtaken += place > last and not executed >> op & 1
                continue
            after = [program.run(op, executed) for program in programs]
            if all(now + more <= most for now, (more, _), most in zip(live, after, limits, strict=True)):
                then = tuple(now + net for now, (_, net) in zip(live, after, strict=True))
                ways = [(last, moved + (place > last))]
                if place > last:
                    ways.append((place, moved + overtaken))
                for kept, cost in ways:
                    reached = (executed | 1 << op, kept)
                    if cost < least.get(reached, len(order) + 1):
                        least[reached] = cost
                        came_from[reached] = (state, op)
                        pushed += 1
                        heappush(waiting, (cost, -reached[0].bit_count(), pushed, reached, then))
            overtaken += place > last
    return None, moved


def _path(came_from: dict[_State, tuple[_State, int]], state: _State) -> Order:
    ops: list[int] = []
    while state in came_from:
        state, op = came_from[state]
        ops.append(op)
    return np.asarray(ops[::-1], np.int32)
