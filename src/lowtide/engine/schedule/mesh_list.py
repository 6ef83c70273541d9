"""Mesh-TensorFlow's list scheduler: mended, as it was, and the better of both."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.schedule.scheduler import best_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshList:
    """Run next the ready op that frees the most bytes; ties go to the smaller op name.

    An op frees the buffers it is the last user of, and takes the bytes of its results that stay after it. So a result
    that nothing uses counts as nothing unless it is an output, although it exists while the op runs: the original does
    the same, and its own test demands it. Scratch and callees are not looked at. Donated inputs count as freed by their
    last user; the original knows only tensors with a producer.

    Source: Mesh-TensorFlow, auto_mtf/scheduler.py, method LIST. Mended, in two places. The original does not update an
    op's priority where the *output* of the op just run is final; it means the input whose use count fell. And an op
    that reads a tensor twice, as its only user, frees it twice there.
    Complexity: O((n + e) log n). Guarantees: none on the peak.
    """

    original: bool = False
    """Whether to leave out what is mended."""

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        graph = problem.graph
        ranks = _native.name_ranks(graph.op_names)
        if self.original:
            return _native.mesh_list_original(problem.native, graph.reads.offsets, graph.reads.values, ranks)
        return _native.mesh_list(problem.native, ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshBest:
    """Take the lesser peak of the mended list order and the original's; the mended one wins a tie.

    Source: Mesh-TensorFlow, auto_mtf/scheduler.py, method LIST, twice: see `MeshList`.
    Complexity: O((n + e) log n). Guarantees: never above `mesh-list`, nor above what the original's order needs.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return best_of(problem, (MeshList(), MeshList(original=True)))
