"""XLA's schedulers: list, depth-first, post-order, and the best of the three."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.schedule.scheduler import best_of


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


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaDfs:
    """Depth-first post-order that visits operands with many extra users first, then large ones, then by op name.

    Extra users of an op are its users minus one, plus those of all its operands. Its size is what it allocates, plus
    the sizes of all its operands. Both count a shared ancestor once per path; extra users are capped at the number of
    ops, sizes at the bytes seen so far. All sinks hang below one root, as the results of an XLA computation hang below
    its root tuple. Control predecessors are visited among the operands, but not summed.

    Source: XLA, hlo_memory_scheduler.cc, DFSMemoryScheduler.
    Complexity: O(n log n + e). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        graph = problem.graph
        ranks = _native.name_ranks(graph.op_names)
        return _native.xla_dfs(problem.native, graph.reads.offsets, graph.reads.values, ranks)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaBest:
    """Take the least peak of list, depth-first and post-order; the earlier one wins a tie.

    Source: XLA, hlo_memory_scheduler.cc, DefaultMemoryScheduler. Where in-place pairs are allowed, the simulation that
    decides takes them, as XLA's heap simulator shares buffers.
    Complexity: O((n + e) log n). Guarantees: never worse than any of the three.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return best_of(problem, (XlaList(), XlaDfs(), Postorder()))
