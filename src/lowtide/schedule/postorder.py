"""XLA's post-order scheduler."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.analysis import Problem
from lowtide.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Postorder:
    """Depth-first post-order from the sinks in program order; operands in the order in which they are read.

    What an op waits for without reading it (control edges, in-place mutations) comes before its operands.

    Source: XLA, HloComputation::MakeInstructionPostOrder, used by PostOrderMemoryScheduler.
    Complexity: O(n + e). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        reads = problem.graph.reads
        return _native.xla_postorder(problem.native, reads.offsets, reads.values)
