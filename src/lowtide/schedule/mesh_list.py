"""Mesh-TensorFlow's list scheduler."""

from dataclasses import dataclass

from lowtide import _native
from lowtide.analysis import Problem
from lowtide.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshList:
    """Run next the ready op that frees the most bytes; ties go to the smaller op name.

    An op frees the buffers it is the last user of and takes the bytes of the outputs that stay after it. An output
    that nothing uses and nobody asked for therefore counts as nothing, although it exists while the op runs: so does
    the original, and its own test demands it. Scratch and callees are not looked at.

    Source: Mesh-TensorFlow, auto_mtf/scheduler.py, method LIST. Mended: the original leaves an op's priority as it was
    when the *output* of the op just run is final, where the input whose use count fell is meant; and an op that reads
    a tensor twice as its only user frees it twice there.
    Donated inputs count as freed by their last user; the original knows only tensors with a producer.
    Complexity: O((n + e) log n). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.mesh_list(problem.native, _native.name_ranks(problem.graph.op_names))
