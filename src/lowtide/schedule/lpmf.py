"""Inductor's least peak memory first."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.analysis import Problem
from lowtide.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Lpmf:
    """Run next the ready op that raises the peak so far least, then the one that leaves the fewest bytes live.

    In order: the bytes an op allocates, if they would raise the peak so far, else 0; the bytes it allocates minus the
    bytes it frees; program order. The peak so far starts at the donated inputs or the outputs, whichever are more.
    Where `threshold_bytes` is positive and every ready op allocates more, the one whose first successor stands earliest
    in the program runs instead; ties go to the op that became ready first.

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
