"""Mesh-TensorFlow's list scheduler."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.schedule.scheduler import best_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshList:
    """Run next the ready op that frees the most bytes; ties go to the smaller op name.

    The figure is the bytes of buffers last used by the op, minus the bytes of its results that stay. A result without
    users counts 0 unless it is an output. Scratch and callees are ignored. Donated inputs count as freed by their last
    user.

    Source: Mesh-TensorFlow, auto_mtf/scheduler.py, method LIST. Mended in two places: the original tests the *output*
    of the op just run before it updates a priority, instead of the input, and frees a tensor twice that its only user
    reads twice. Complexity: O((n + e) log n). Guarantees: none on the peak.
    """

    original: bool = False

    def order(self, problem: Problem) -> Order:
        graph = problem.graph
        ranks = _native.name_ranks(graph.op_names)
        if self.original:
            return _native.mesh_list_original(problem.native, graph.reads.offsets, graph.reads.values, ranks)
        return _native.mesh_list(problem.native, ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshBest:
    """Take the lesser peak of the mended list order and the original one; the mended order wins a tie.

    Source: Mesh-TensorFlow, auto_mtf/scheduler.py, method LIST; see `MeshList`.
    Complexity: O((n + e) log n). Guarantees: never above either order.
    """

    def order(self, problem: Problem) -> Order:
        return best_of(problem, (MeshList(), MeshList(original=True)))
