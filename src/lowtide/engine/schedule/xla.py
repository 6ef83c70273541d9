"""XLA's schedulers."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.schedule.scheduler import best_of


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaList:
    """Run next the ready op with the most (bytes freed minus bytes defined), then most users, then the newest op.

    The newest op is the last one that became ready or changed its figure. Scratch and the peaks of callees count as
    defined bytes; for while, call and conditional, this peak replaces the result. Buffers without a producer count 0,
    and outputs are never freed.

    Source: XLA, hlo_memory_scheduler.cc, ListMemoryScheduler. Mended: callees count, unlike in later versions.
    Complexity: O((n + e) log n). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        return _native.xla_list(problem.native)


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaDfs:
    """Depth-first post-order that visits operands with many extra users first, then large ones, then by op name.

    Extra users of an op are its users minus one, plus those of its operands. Its size is its allocated bytes, plus the
    sizes of its operands. Both count a shared ancestor once per path. Control predecessors are visited among the
    operands, but not summed.

    Source: XLA, hlo_memory_scheduler.cc, DFSMemoryScheduler. Complexity: O(n log n + e). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        graph = problem.graph
        ranks = _native.name_ranks(graph.op_names)
        return _native.xla_dfs(problem.native, graph.reads.offsets, graph.reads.values, ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Postorder:
    """Depth-first post-order from the sinks in program order; operands in the order of reading.

    Predecessors that an op does not read (control edges, mutations) come before its operands.

    Source: XLA, HloComputation::MakeInstructionPostOrder, used by PostOrderMemoryScheduler.
    Complexity: O(n + e). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        reads = problem.graph.reads
        return _native.xla_postorder(problem.native, reads.offsets, reads.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaBest:
    """Take the least peak of list, depth-first and post-order; the earlier one wins a tie.

    Source: XLA, hlo_memory_scheduler.cc, DefaultMemoryScheduler. The simulation uses in-place pairs if allowed, as
    XLA's heap simulator shares buffers.
    Complexity: O((n + e) log n). Guarantees: never worse than any of the three.
    """

    def order(self, problem: Problem) -> Order:
        return best_of(problem, (XlaList(), XlaDfs(), Postorder()))
