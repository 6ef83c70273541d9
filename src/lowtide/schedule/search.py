"""The search: the best order there is, as far as its work limit allows, with a proof."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.analysis import Problem
from lowtide.analysis.problem import Order
from lowtide.effort import DEFAULT_EFFORT, EffortName
from lowtide.errors import UsageError
from lowtide.schedule.table import SCHEDULERS, scheduler, scheduler_names
from lowtide.search import EFFORTS, Solution, solve

_COMBINED = frozenset({"search", "xla-best", "inductor-best"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Start from every other order, bound the peak by minimum cuts, and close the gap by uncrossing and exact search.

    Source: lowtide's own; see `lowtide.search.solve`.
    Complexity: exponential at worst, cut off after the work that `effort` allows; most graphs take one or two flows.
    Guarantees: never above any other order in the table; the bound holds for every order; deterministic.
    """

    effort: EffortName = DEFAULT_EFFORT
    """How much work may be done."""

    def order(self, problem: Problem) -> Order:
        """Return the best order found."""
        return self.solve(problem).order

    def solve(
        self,
        problem: Problem,
        *,
        limits: Sequence[int | None] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Solution:
        """Return the best order found with its proof; see `lowtide.search.solve` for `limits`."""
        return solve(problem, _seeds(problem, progress), EFFORTS[self.effort], limits=limits, progress=progress)


def _seeds(problem: Problem, progress: Callable[[str], None] | None) -> Iterator[Order]:
    for name in scheduler_names():
        if name not in _COMBINED:
            if progress is not None:
                progress(f"ordering {problem.graph.n_ops} ops ({name})")
            order = scheduler(name).order(problem)
            if name not in SCHEDULERS:
                _check_foreign(problem, order, name)
            yield order


def _check_foreign(problem: Problem, order: Order, name: str) -> None:
    """Raise UsageError when a third party's scheduler gives no valid order, before anything is built on it."""
    n_ops, predecessors = problem.graph.n_ops, problem.graph.structure.predecessors
    place = np.empty(n_ops, np.int64)
    valid = order.shape == (n_ops,) and np.array_equal(np.sort(order), np.arange(n_ops))
    if valid:
        place[order] = np.arange(n_ops)
        valid = bool((place[predecessors.values] < place[predecessors.owners()]).all())
    if not valid:
        raise UsageError(f"scheduler {name!r} gives no valid order of this graph; update or remove its package")
