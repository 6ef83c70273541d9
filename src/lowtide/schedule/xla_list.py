"""XLA's list scheduler."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.analysis import Problem
from lowtide.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaList:
    """Run next the ready op with the most (bytes freed minus bytes defined), then most users, then the newest one.

    Newest is the op that became ready, or whose figure changed, last. Scratch and the peak inside callees count as
    defined bytes; for while, call and conditional that peak stands in for the result. Buffers that no op allocates
    (parameters and constants to XLA) count as nothing, and an output is never freed.

    Source: XLA, hlo_memory_scheduler.cc, ListMemoryScheduler. Mended: later versions of the original dropped the
    callees from the figure; they count here, as they first did.
    Complexity: O((n + e) log n). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.xla_list(problem.native)
