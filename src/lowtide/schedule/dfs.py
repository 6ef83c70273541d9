"""Inductor's depth-first order."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.analysis import Problem
from lowtide.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Dfs:
    """Visit the ops by rising bytes read and written, each after what it depends on, visited in the same order.

    Bytes read leave out persistent and kept inputs; ties go to program order.

    Source: PyTorch Inductor, memory.py, topological_sort_dfs (recursive there, here with a stack of its own).
    Complexity: O(n log n + e). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.dfs(problem.native)
