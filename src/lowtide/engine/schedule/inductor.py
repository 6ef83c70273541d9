"""Inductor's schedulers: least peak memory first, breadth-first, depth-first, and the best of them."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.schedule.compare import best_of
from lowtide.engine.schedule.elements import view_by_elements
from lowtide.engine.schedule.given import Given


@dataclass(frozen=True, slots=True, kw_only=True)
class Lpmf:
    """Run next the ready op that raises the peak so far least, then the one that leaves the fewest bytes live.

    Ready ops are compared by three figures in turn: the bytes an op allocates if they would raise the peak so far, else
    0; the bytes it allocates minus the bytes it frees; program order. The peak so far starts at the donated inputs or
    the outputs, whichever are more. If `threshold_bytes` is positive and every ready op allocates more, the op whose
    first successor stands earliest in the program runs instead; ties go to the op that became ready first.

    Source: PyTorch Inductor, memory.py, topological_sort_lpmf, after "Buffer memory optimization for video codec
    application modeled in Simulink" (DAC 2006). The original scans all ready ops in every step; here a tournament tree
    over the ops sorted by size answers in O(log n).
    Complexity: O((n + e) log n). Guarantees: none on the peak.
    """

    threshold_bytes: int = 0
    """Inductor's size_threshold_for_succ_based_strategy; 0 switches the successor rule off."""

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.lpmf(problem.native, self.threshold_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bfs:
    """Run next the ready op whose predecessors ran earliest.

    Compares the sorted places of the predecessors in the order so far, lexicographically; ties go to program order. Who
    reads an element of a result comes after the op that hands it on; see `view_by_elements`.

    Source: PyTorch Inductor, memory.py, topological_sort_bfs.
    Complexity: O((n + e) log n). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.bfs(view_by_elements(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dfs:
    """Visit the ops by rising bytes read and written; before each, visit what it depends on, in the same order.

    Bytes read leave out persistent and kept inputs; ties go to program order. An op that hands on an element of a
    result reads no bytes; see `view_by_elements`.

    Source: PyTorch Inductor, memory.py, topological_sort_dfs (recursive there, here with a stack of its own).
    Complexity: O(n log n + e). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.dfs(view_by_elements(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class InductorBest:
    """Take the least peak of the given order, LPMF, breadth-first and depth-first; the earlier one wins a tie.

    Source: PyTorch Inductor, memory.py, reorder_for_peak_memory. Mended: at first its estimate freed the
    graph's outputs before the first step; here, as in its later versions, they stay to the end.
    Complexity: O((n + e) log n). Guarantees: never worse than the given order.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return best_of(problem, (Given(), Lpmf(), Bfs(), Dfs()))
