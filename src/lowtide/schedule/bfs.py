"""Inductor's breadth-first order."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.analysis import Problem
from lowtide.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Bfs:
    """Run next the ready op whose predecessors ran earliest.

    Compares the sorted places of the predecessors in the order so far, lexicographically; ties go to program order.

    Source: PyTorch Inductor, memory.py, topological_sort_bfs.
    Complexity: O((n + e) log n). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.bfs(problem.native)
