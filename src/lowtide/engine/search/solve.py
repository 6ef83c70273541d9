"""Improve the best order and raise the bound until they meet."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from lowtide.core.effort import SearchEffort
from lowtide.core.index_spaces import SpaceId
from lowtide.core.progress import Report, silent
from lowtide.engine.analysis.budget import UNLIMITED, Budget
from lowtide.engine.analysis.lower_bounds import LowerBound, bytes_at_the_edges, lower_bounds
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.search.cuts import ClosureCuts
from lowtide.engine.search.fit import Fit, FitOutcome, find_fit
from lowtide.engine.search.optimal_orders import series_parallel_order, tree_order
from lowtide.engine.search.uncross import close_order, close_orders, first_in_group_bound, uncross, uncross_first

_Callback = Callable[[Order], None] | None
_FIRST_SHARE = 50_000_000
_GROWTH = 4
_SEEDS_UNCROSSED = 3
_TRIES = ((True, 2), (False, 1), (False, 0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """The best order, the lower bounds, and their steps."""

    order: Order
    peaks: tuple[int, ...]
    bounds: tuple[LowerBound, ...]
    cuts: tuple[LowerBound, ...]
    """Bounds before exact search."""
    tree_bytes: int | None = None
    """The optimal peak of a tree or series-parallel graph."""
    refuted: tuple[FitOutcome, ...] = field(default=())
    interrupted: bool = False
    work: int = 0

    @property
    def optimal(self) -> bool:
        return all(peak == bound.peak_bytes for peak, bound in zip(self.peaks, self.bounds, strict=True))


def solve(
    problem: Problem,
    seeds: Iterable[Order],
    effort: SearchEffort,
    *,
    rivals: Iterable[Order] = (),
    budget: Budget | None = None,
    progress: Report | None = None,
    keep: _Callback = None,
) -> Solution:
    """Return an order of least peak found from `seeds`, at least one valid order, with lower bounds.

    Orders are compared by bytes above `budget`, then by the sum of peaks. `rivals` are valid orders evaluated last.
    `keep` receives each new best order before a long step. Never worse than any seed or rival; Ctrl-C returns the best
    order found; deterministic.
    """
    search = _Search(problem, effort, budget, progress or silent, keep)
    interrupted = False
    try:
        search.run(seeds)
        search.try_rivals(rivals)
    except KeyboardInterrupt:
        interrupted = True
    return search.solution(interrupted)


def _best_first(evaluated: Sequence[tuple[tuple[int, int], Order]]) -> list[Order]:
    return [order for _, order in sorted(evaluated, key=lambda entry: entry[0])]


class _Search:
    def __init__(
        self, problem: Problem, effort: SearchEffort, budget: Budget | None, progress: Report, keep: _Callback
    ) -> None:
        self.problem = problem
        self.effort = effort
        self.limits = (UNLIMITED,) * len(problem.graph.spaces) if budget is None else budget.limits
        self.progress = progress
        self.on_improvement = keep
        self.reported: Order | None = None
        self.order = problem.given_order()
        self.peaks: list[int] = problem.evaluate(self.order).peaks.tolist()
        self.bounds = [
            LowerBound(space=space.name, peak_bytes=bytes_at_the_edges(problem.graph, position), op=None)
            for position, space in enumerate(problem.graph.spaces)
        ]
        self.cuts = list(self.bounds)
        self.tree_bytes: int | None = None
        self.refuted: list[FitOutcome] = []
        self.work = 0
        self.moved = False
        self.stopped = False

    def solution(self, interrupted: bool) -> Solution:
        return Solution(
            order=self.order,
            peaks=tuple(self.peaks),
            bounds=tuple(self.bounds),
            cuts=tuple(self.cuts),
            tree_bytes=self.tree_bytes,
            refuted=tuple(self.refuted),
            interrupted=interrupted,
            work=self.work,
        )

    def run(self, seeds: Iterable[Order]) -> None:
        evaluated = [(self.evaluate(seed), seed) for seed in seeds]
        ranked = [self.problem.given_order(), *_best_first(evaluated)]
        evaluated += [(self.evaluate(order), order) for order in close_orders(self.problem, ranked)]
        ranked = _best_first(evaluated)
        self.progress("computing a lower bound of the peak")
        self.cuts = lower_bounds(self.problem, ranked)
        self.bounds = list(self.cuts)
        if self.gap():
            self.use_optimal_order()
        if self.gap():
            self.progress("uncrossing the worst ops")
            self.uncross(ranked[:_SEEDS_UNCROSSED])
        if self.problem.graph.n_ops > self.effort.fit_ops:
            return
        if self.gap():
            self.progress("bounding the first op of a group")
            self.bound_first_in_group()
        share = min(_FIRST_SHARE, self.effort.fit_work)
        while self.gap() and self.work < self.effort.fit_work:
            self.progress(f"searching {self.gap():,} bytes between the bound and the best order")
            gap, self.moved, self.stopped = self.gap(), False, False
            for space in range(len(self.bounds)):
                self.try_budgets(space, share)
            if not self.moved and not self.stopped:
                break
            if self.gap() > gap // 2:  # small steps would use up the work
                share *= _GROWTH

    def try_rivals(self, rivals: Iterable[Order]) -> None:
        if self.gap():
            for order in rivals:
                self.evaluate(order)

    def rank(self, peaks: Sequence[int]) -> tuple[int, int]:
        over = sum(max(0, peak - limit) for peak, limit in zip(peaks, self.limits, strict=True))
        return over, sum(peaks)

    def evaluate(self, order: Order) -> tuple[int, int]:
        peaks: list[int] = self.problem.evaluate(order).peaks.tolist()
        rank = self.rank(peaks)
        if rank < self.rank(self.peaks):
            self.order, self.peaks = order, peaks
        return rank

    def keep(self, order: Order) -> bool:
        present = self.rank(self.peaks)
        return self.evaluate(order) < present

    def keep_closed(self, order: Order) -> None:
        self.keep(order)
        self.keep(close_order(self.problem, order))

    def report_best(self) -> None:
        if self.on_improvement is not None and self.reported is not self.order:
            self.on_improvement(self.order)
            self.reported = self.order

    def gap(self) -> int:
        return sum(self.peaks) - sum(bound.peak_bytes for bound in self.bounds)

    def use_optimal_order(self) -> None:
        order = tree_order(self.problem)
        if order is None:
            order = series_parallel_order(self.problem)
        if order is None:
            return
        self.keep(order)
        # Better plans of callees may exist, so with callees the optimum is no bound.
        if not self.problem.graph.subgraphs:
            self.tree_bytes = self.peaks[0]
            self.bounds = [replace(self.bounds[0], peak_bytes=self.tree_bytes)]

    def uncross(self, seeds: Sequence[Order]) -> None:
        cuts = ClosureCuts(self.problem)
        for seed in seeds:
            order = seed
            for space in range(len(self.bounds)):
                order = uncross(self.problem, order, cuts, space, self.effort.cut_work)
            self.keep_closed(order)
            if not self.gap():
                return

    def bound_first_in_group(self) -> None:
        for space in range(len(self.bounds)):
            order = uncross_first(self.problem, self.order, space, self.effort.cut_work)
            self.keep_closed(order)
            self.refute(space, self.outcome_of_bound(space, *first_in_group_bound(self.problem, self.order, space)))

    def try_budgets(self, space: SpaceId, most_work: int) -> None:
        for improving, part in _TRIES:
            low, high = self.bounds[space].peak_bytes, self.peaks[space]
            if low >= high:
                return
            # An improvement must not raise other spaces; a bound must hold without limits on them.
            budget = [UNLIMITED] * len(self.bounds)
            if improving:
                pairs = zip(self.peaks, self.limits, strict=True)
                budget = [peak if limit == UNLIMITED else max(peak, limit) for peak, limit in pairs]
            budget[space] = low + (high - 1 - low) * part // 2
            left = self.effort.fit_work - self.work
            if left <= 0:
                return
            self.report_best()
            outcome = find_fit(self.problem, budget, self.order, min(most_work, left))
            self.work += outcome.work
            if outcome.fit == Fit.FOUND and outcome.order is not None:
                self.moved |= self.keep(outcome.order)
            elif outcome.fit == Fit.STOPPED:
                self.stopped = True
            elif not improving or len(self.bounds) == 1:
                self.moved |= self.refute(space, outcome)

    def outcome_of_bound(self, space: SpaceId, at_least_bytes: int, work: int) -> FitOutcome:
        budget, following = ([UNLIMITED] * len(self.bounds) for _ in range(2))
        budget[space], following[space] = at_least_bytes - 1, at_least_bytes
        return FitOutcome(fit=Fit.IMPOSSIBLE, budget=tuple(budget), next_budget=tuple(following), work=work)

    def refute(self, space: SpaceId, outcome: FitOutcome) -> bool:
        raised = min(outcome.next_budget[space], self.peaks[space])
        bound = self.bounds[space]
        # With callees nothing is refuted, as above.
        if raised <= bound.peak_bytes or self.problem.graph.subgraphs:
            return False
        next_budget = list(outcome.next_budget)
        next_budget[space] = raised
        self.refuted.append(replace(outcome, next_budget=tuple(next_budget)))
        self.bounds[space] = replace(bound, peak_bytes=raised)
        return True
