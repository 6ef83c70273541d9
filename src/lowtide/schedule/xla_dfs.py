"""XLA's depth-first scheduler."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.analysis import Problem
from lowtide.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaDfs:
    """Depth-first post-order that visits operands with many extra users first, then large ones, then by op name.

    Extra users of an op are its users minus one plus those of all its operands; its size is what it allocates plus the
    sizes of all its operands. Both count shared ancestors once per path and are capped, the one at the number of ops,
    the other at the bytes seen so far. All sinks hang below one root, as the results of an XLA computation do below
    its root tuple; control predecessors are visited among the operands but not summed.

    Source: XLA, hlo_memory_scheduler.cc, DFSMemoryScheduler.
    Complexity: O(n log n + e). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        graph = problem.graph
        ranks = _native.name_ranks(graph.op_names)
        return _native.xla_dfs(problem.native, graph.reads.offsets, graph.reads.values, ranks)
