"""The scheduler `search`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lowtide.core.effort import DEFAULT_EFFORT, SEARCH_EFFORTS, EffortName
from lowtide.core.errors import UsageError
from lowtide.core.progress import Report
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph.execution import is_valid_order
from lowtide.engine.schedule.table import SCHEDULERS, scheduler, scheduler_names
from lowtide.engine.search import Solution, solve


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Start from the other orders, bound the peak by minimum cuts, and close the gap by uncrossing and exact search.

    Source: lowtide; see `lowtide.engine.search.solve`.
    Complexity: exponential at worst, limited by the work of `effort`; most graphs take one or two flows.
    Guarantees: never above any other order in the table; the bound holds for every order; deterministic.
    """

    effort: EffortName = DEFAULT_EFFORT

    def order(self, problem: Problem) -> Order:
        return self.solve(problem).order

    def solve(
        self,
        problem: Problem,
        *,
        budget: Budget | None = None,
        progress: Report | None = None,
        keep: Callable[[Order], None] | None = None,
    ) -> Solution:
        return solve(
            problem,
            _seeds(problem, progress),
            SEARCH_EFFORTS[self.effort],
            rivals=(scheduler(name).order(problem) for name, row in SCHEDULERS.items() if row.role == "rival"),
            budget=budget,
            progress=progress,
            keep=keep,
        )


def _seeds(problem: Problem, progress: Report | None) -> Iterator[Order]:
    for name in scheduler_names():
        if name in SCHEDULERS and SCHEDULERS[name].role != "seed":
            continue
        if progress is not None:
            progress(f"ordering {problem.graph.n_ops} ops ({name})")
        order = scheduler(name).order(problem)
        if name not in SCHEDULERS and not is_valid_order(problem.graph, order):
            raise UsageError(f"scheduler {name!r} gives no valid order of this graph; update or remove its package")
        yield order
