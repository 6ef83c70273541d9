"""The search over base orders."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import DEFAULT_EFFORT, RECOMPUTE_EFFORTS, SEARCH_EFFORTS, EffortName, RecomputeEffort
from lowtide.core.errors import UsageError
from lowtide.core.progress import Report, Stage
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.plan import Plan
from lowtide.engine.recompute.base_orders import frees_early, lower_sections
from lowtide.engine.recompute.budget_search import BudgetSearch
from lowtide.engine.recompute.order_attempt import OrderAttempt
from lowtide.engine.recompute.program import OrderedProgram
from lowtide.engine.recompute.result import RecomputeResult
from lowtide.engine.recompute.unrolled import first_runs

_MAX_REORDERINGS = 3
_SETTLE_COST_RATIO = 1.1
"""Orders within this multiple of the lowest extra cost get run sequences."""
_MISSED_COST_RATIO = 0.9
_DROP_COST_RATIO = 1.5
"""Multiple of the lowest extra cost at which other orders' plans of drops end."""
_DROP_WORK_RATIO = 2
_LEAST_DROP_WORK = 25_000_000
_FEW_OPS = 1_000
_CLOSE_COST_RATIO = 1.25
_MISSES_COST_RATIO = 1.1
_MAX_MISSES = 4
_MAX_FAILED = 2
_LEAST_GAIN = 0.01

Search = Literal["settle", "reorder", "polish"]
"""Run sequences, reorderings, and then neighborhoods and the solver."""


@dataclass(frozen=True, slots=True)
class Route:
    """The base order (None: all) and the searches to use."""

    base: str | None = None
    searches: frozenset[Search] = frozenset(get_args(Search))

    def allows(self, name: str) -> bool:
        return self.base in (None, name)


EVERY_ROUTE = Route()
QUICK_ROUTE = Route(searches=frozenset(("settle", "reorder")))


@dataclass(frozen=True, slots=True, eq=False)
class Composed:
    """The cheapest plan over several base orders."""

    result: RecomputeResult
    """Its bounds hold for `order`, or for any order."""
    base: str
    """Base order, with "+ rerun order" per reordering of its runs."""
    order: Order
    problem: Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComposeSettings:
    """How to choose order and recomputed ops."""

    cost: NDArray[np.float64] | None = None
    """Recompute cost per op, by default the graph's."""
    reorder: bool = True
    """Whether the order of first runs may change."""
    effort: EffortName = DEFAULT_EFFORT
    exact: bool = True
    """Whether to use the exact search and the solver."""
    prove: bool = False
    """Whether to raise the cost bound up to the work limit for proofs."""
    negligible: float = 0.0
    """Accepted extra cost above its bound in larger graphs, as a share of the base cost."""

    @property
    def limits(self) -> RecomputeEffort:
        limits = RECOMPUTE_EFFORTS[self.effort]
        return limits.for_proof() if self.prove else limits

    @property
    def proves(self) -> bool:
        return self.prove or self.effort == "max"


@dataclass(frozen=True, slots=True, eq=False)
class OrderSearch:
    """The search over base orders for one budget."""

    problem: Problem
    budget: int
    cost: NDArray[np.float64]
    settings: ComposeSettings
    report: Report
    keep: Callable[[Plan], None] | None
    _begun: dict[str, OrderAttempt] = field(default_factory=dict[str, "OrderAttempt"])
    _kept: list[tuple[int, float, int]] = field(default_factory=list[tuple[int, float, int]])

    def plan(self, orders: Sequence[tuple[str, Order]], route: Route = EVERY_ROUTE) -> tuple[Composed, Route]:
        """Return the cheapest plan from the named base orders, and the useful part of the route.

        All orders get plans of drops, those near the cheapest run sequences. The best of each family is then improved.
        """
        best, useful = self._best(orders, route)
        if self.settings.proves:
            best.search.bound_more(best.found, self.settings.limits, exact=self.settings.exact)
        result = best.search.result(best.found, self.settings.limits, exact=self.settings.exact)
        composed = Composed(result, best.name, best.search.program.order, self.problem)
        return composed, Route(best.base, frozenset(useful))

    def is_done_by(self, named: tuple[str, Order]) -> bool:
        return self._begin(*named, float("inf")).is_done

    def _begin(self, name: str, order: Order, max_cost: float) -> OrderAttempt:
        if name not in self._begun:
            self.report(f"choosing ops to recompute ({name})")
            self._begun[name] = self._attempt(name, order, self.settings.limits, max_cost)
        return self._begun[name]

    def _best(self, orders: Sequence[tuple[str, Order]], route: Route) -> tuple[OrderAttempt, set[Search]]:
        """Return the cheapest attempt, and the searches that helped."""
        limits, useful = self.settings.limits, set[Search]()
        families: list[list[OrderAttempt]] = []
        cheapest = float("inf")
        for family in self._families(orders, route):
            families.append([])
            for name, order in family:
                attempt = self._begin(name, order, _DROP_COST_RATIO * cheapest)
                if len(order) > _FEW_OPS and any(attempt.begins_like(other) for other in chain(*families)):
                    continue
                families[-1].append(attempt)
                cheapest = min(cheapest, attempt.first_cost)
                if attempt.is_done:
                    attempt.search.choose_drops(attempt.found, limits)
                    self._keep_if_better(attempt)
                    return attempt, useful
        attempts = [attempt for family in families for attempt in family]
        cheapest, drop_limits = float("inf"), limits
        for attempt in sorted(attempts, key=lambda each: each.found.first_rank):
            attempt.search.choose_drops(attempt.found, drop_limits, _DROP_COST_RATIO * cheapest)
            if attempt.cost < cheapest:
                cheapest = attempt.cost
                later = max(_LEAST_DROP_WORK, _DROP_WORK_RATIO * attempt.found.play_work)
                drop_limits = replace(limits, play_work=min(limits.play_work, later))
            self._keep_if_better(attempt)
            if attempt.is_done:
                return attempt, useful
        if not attempts:
            raise UsageError("there is no base order to plan; give one")
        if "polish" not in route.searches and not any(each.found.fits for each in attempts):
            return min(attempts, key=_rank), useful
        self.report(Stage.IMPROVE)
        before = min(each.rank for each in attempts)
        settles = "settle" in route.searches
        if settles:
            self._settle(attempts, limits)
            useful |= _useful("settle", before, min(each.rank for each in attempts))
        best = min(attempts, key=_rank)
        if "reorder" in route.searches:
            best = self._best_reordered(families, limits, settles=settles)
            best = self._reordered_misses(attempts, best, limits, settles=settles)
            useful |= _useful("reorder", min(each.rank for each in attempts), best.rank)
        if "polish" in route.searches:
            if not best.found.fits:
                self._lower(attempts, limits)
                best = min(best, self._best_reordered(families, limits, lowers=True), key=_rank)
            before = best.rank
            best.search.refine(best.found, limits)
            self._keep_if_better(best)
            if self.settings.exact:
                self._close(best, limits)
            useful |= _useful("polish", before, best.rank)
        return best, useful

    def _families(self, orders: Sequence[tuple[str, Order]], route: Route) -> Iterator[Iterable[tuple[str, Order]]]:
        given = self._variants(orders, route, "", np.asarray)
        if not self.settings.reorder:
            yield given
            return
        yield _distinct(chain(given, self._variants(orders, route, " + lower sections", self._lower_sections)))
        early = self._variants(orders, route, " + early frees", partial(frees_early, self.problem))
        names = {name for name, _ in orders}
        yield ((name, order) for name, order in _distinct(chain(orders, early)) if name not in names)

    def _variants(
        self, orders: Sequence[tuple[str, Order]], route: Route, suffix: str, change: Callable[[Order], Order]
    ) -> Iterator[tuple[str, Order]]:
        for name, order in orders:
            if route.allows(name + suffix):
                yield name + suffix, change(order)

    def _lower_sections(self, order: Order) -> Order:
        return lower_sections(self._program(order), self.budget, SEARCH_EFFORTS["fast"])

    def _program(self, order: Order) -> OrderedProgram:
        return OrderedProgram(self.problem, order, self.cost)

    def _settle(self, attempts: Sequence[OrderAttempt], limits: RecomputeEffort) -> None:
        for attempt in sorted(attempts, key=lambda each: each.found.execution.extra_cost):
            best = min(other.rank for other in attempts)
            may_win = attempt.is_near(best, _SETTLE_COST_RATIO) and attempt.found.may_fit
            if may_win or attempt.may_fit_below(_MISSED_COST_RATIO * best[1]):
                self.report(f"choosing ops to recompute ({attempt.name}, run by run)")
                attempt.search.settle(attempt.found, limits)
                self._keep_if_better(attempt)

    def _lower(self, attempts: Sequence[OrderAttempt], limits: RecomputeEffort) -> None:
        lowest = min(attempts, key=_rank)
        for attempt in sorted(attempts, key=lambda each: each.found.execution.extra_cost):
            if attempt.found.may_fit or attempt is lowest:
                self.report(f"lowering the peak ({attempt.name})")
                attempt.search.lower(attempt.found, limits)
                self._keep_if_better(attempt)

    def _best_reordered(
        self,
        families: Sequence[Sequence[OrderAttempt]],
        limits: RecomputeEffort,
        *,
        settles: bool = True,
        lowers: bool = False,
    ) -> OrderAttempt:
        leaders = sorted((min(family, key=_rank) for family in families if family), key=_rank)
        best = leaders[0]
        for leader in leaders:
            if leader.is_near(best.rank, _CLOSE_COST_RATIO):
                best = min(best, self._reordered(leader, limits, settles=settles, lowers=lowers), key=_rank)
        return best

    def _reordered_misses(
        self, attempts: Sequence[OrderAttempt], best: OrderAttempt, limits: RecomputeEffort, *, settles: bool
    ) -> OrderAttempt:
        """Return the best attempt after reordering cheaper plans over the budget, which may then fit."""
        if best.found.fits and best.cost <= _MISSES_COST_RATIO * best.found.steering_bound:
            return best
        failed = 0
        for attempt in sorted(attempts, key=_rank):
            misses = [each for each in attempt.found.misses if each.extra_cost < best.cost]
            for miss in misses[:: max(1, -(-len(misses) // _MAX_MISSES))] if attempt.found.may_fit else ():
                other = replace(attempt, found=attempt.found.at(miss))
                found = self._reordered(other, limits, settles=settles, lowers=False)
                failed = 0 if found.rank < best.rank else failed + (found is not other)
                best = min(best, found, key=_rank)
                if failed == _MAX_FAILED:
                    return best
        return best

    def _attempt(
        self, name: str, order: Order, limits: RecomputeEffort, max_cost: float = float("inf")
    ) -> OrderAttempt:
        search = BudgetSearch(self._program(order), self.settings.negligible)
        return OrderAttempt(name, name, search, search.begin(self.budget, limits, max_cost, exact=self.settings.exact))

    def _keep_if_better(self, attempt: OrderAttempt) -> None:
        if self.keep is not None and (not self._kept or attempt.rank < self._kept[0]):
            self._kept[:] = [attempt.rank]
            self.keep(attempt.search.program.plan(attempt.found.execution))

    def _reordered(self, best: OrderAttempt, limits: RecomputeEffort, *, settles: bool, lowers: bool) -> OrderAttempt:
        last, lowest, lowest_rank, settings = best, best.rank, best.rank, self.settings
        closes_all = settings.exact and settings.effort == "max"
        # Later reorderings gain less, so they get less work.
        later_effort: EffortName = "max" if settings.effort == "max" else "fast"
        if closes_all:
            self._close(best, limits)
        for _ in range(_MAX_REORDERINGS if settings.reorder and not best.is_done else 0):
            self.report("reordering the recomputed program")
            runs = last.runs_in_better_order(later_effort, self.budget)
            order = first_runs(runs.tolist())
            if np.array_equal(order, last.search.program.order):
                break
            turn = replace(self._attempt(f"{last.name} + rerun order", order, limits), base=best.base)
            turn.search.choose_drops(turn.found, limits, _DROP_COST_RATIO * best.cost)
            as_ordered = turn.search.plan_of_runs(runs, turn.found, limits)
            if as_ordered.rank(as_ordered.execution)[:2] < best.rank[:2]:
                best = replace(turn, found=as_ordered)
            if turn.is_near(lowest, _SETTLE_COST_RATIO) and (turn.found.may_fit or turn.rank < best.rank):
                if settles:
                    turn.search.settle(turn.found, limits)
                if lowers:
                    turn.search.lower(turn.found, limits)
            if turn.rank >= lowest_rank:
                break
            lowest_rank = turn.rank
            if closes_all:
                turn.search.close_gap(turn.found, limits)
                if best.search is turn.search:
                    best.found.share_bounds(turn.found)
            if turn.rank >= last.rank:
                break
            last = turn
            if turn.rank[:2] < best.rank[:2]:
                best = turn
            self._keep_if_better(best)
        return best

    def _close(self, attempt: OrderAttempt, limits: RecomputeEffort) -> None:
        self.report(f"closing the gap ({attempt.name})")
        attempt.search.close_gap(attempt.found, limits)
        self._keep_if_better(attempt)


def _rank(attempt: OrderAttempt) -> tuple[int, float, int]:
    return attempt.rank


def _useful(search: Search, before: tuple[int, float, int], after: tuple[int, float, int]) -> set[Search]:
    return {search} if after[0] < before[0] or after[1] < (1 - _LEAST_GAIN) * before[1] else set()


def _distinct(orders: Iterable[tuple[str, Order]]) -> Iterator[tuple[str, Order]]:
    known: set[bytes] = set()
    for name, order in orders:
        key = order.tobytes()
        if key not in known:
            known.add(key)
            yield name, order
