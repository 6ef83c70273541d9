"""The order of Inductor's kernels after fusion, by the search."""

from collections.abc import Sequence

from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.compile.fusion.cpu_functions import CpuFunctions
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.compile.fusion.kernel_graph import graph_of_kernels
from lowtide.frameworks.torch.compile.identity import identity
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.internals.kernels import KernelNode, input_names, unpacked_tuple


class MemoryOrder:
    """A pass over Inductor's scheduler nodes, to run last; never worse than the order it is given."""

    def __init__(self, options: Options, peaks: FusedPeaks) -> None:
        self._options = options
        self._peaks = peaks

    def __deepcopy__(self, memo: object) -> "MemoryOrder":
        """Return itself: copies of a configuration follow the same plans."""
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle as what Inductor's caches tell this pass apart by; it is never restored from that."""
        return str, (f"{identity(self._options)} {self._peaks.identity}",)

    def __call__(self, nodes: Sequence[KernelNode]) -> list[KernelNode]:
        """Return the kernels in the order of least peak; collectives and side effects keep theirs."""
        if not nodes:
            return []
        techniques = frozenset({"share"}) | (self._options.techniques & {"reorder"})
        settings = PlanSettings(techniques=techniques, effort=self._options.effort, addresses=False)
        given = self._peaks.given(input_names())
        order = find_plan(graph_of_kernels(nodes, given), settings).plan.order()
        ordered = _with_parts_beside([nodes[place] for place in order.tolist()])
        functions = CpuFunctions.of(ordered, self._peaks.left(input_names()), given)
        functions.end_where_full()
        self._peaks.note_outputs(input_names())
        self._peaks.check(input_names(), functions.peak_bytes)
        return ordered


def _with_parts_beside(nodes: Sequence[KernelNode]) -> list[KernelNode]:
    """Return kernels in their order, but what takes a result out of a tuple right behind what makes the tuple.

    A tuple keeps all its results alive until the last is taken out.
    """
    made = {name: node for node in nodes for name in node.get_buffer_names()}
    parts: dict[KernelNode, list[KernelNode]] = {}
    for node in nodes:
        source = unpacked_tuple(node)
        if source is not None:
            parts.setdefault(made[source], []).append(node)
    return [each for node in nodes if unpacked_tuple(node) is None for each in _unpacked(node, parts)]


def _unpacked(node: KernelNode, parts: dict[KernelNode, list[KernelNode]]) -> list[KernelNode]:
    return [node, *(each for part in parts.get(node, ()) for each in _unpacked(part, parts))]
