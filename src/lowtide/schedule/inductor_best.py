"""Inductor's choice: the best of the given order and its three."""

from dataclasses import dataclass

from lowtide.analysis import Problem
from lowtide.analysis.problem import Order
from lowtide.schedule.best_of import best_of
from lowtide.schedule.bfs import Bfs
from lowtide.schedule.dfs import Dfs
from lowtide.schedule.given import Given
from lowtide.schedule.lpmf import Lpmf


@dataclass(frozen=True, slots=True, kw_only=True)
class InductorBest:
    """The least peak of the given order, LPMF, breadth-first and depth-first, in this preference.

    Source: PyTorch Inductor, memory.py, reorder_for_peak_memory. Mended: the estimate it decided by first freed the
    graph's outputs before the first step; here, as in later versions, they stay to the end.
    Complexity: O((n + e) log n). Guarantees: never worse than the given order.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return best_of(problem, (Given(), Lpmf(), Bfs(), Dfs()))
