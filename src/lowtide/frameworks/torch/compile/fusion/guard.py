"""Fusion within the budget: kernels that would keep too much alive together stay apart."""

from collections.abc import Sequence
from typing import Any

from lowtide.core.index_spaces import OpId
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.compile.fusion.kernel_graph import graph_of_kernels
from lowtide.frameworks.torch.compile.fusion.timeline import FusionTimeline
from lowtide.frameworks.torch.compile.identity import identity
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.internals.inductor import CustomSchedulerPass
from lowtide.frameworks.torch.internals.kernel_storage import drop_ordering_users, loops_over_reduction
from lowtide.frameworks.torch.internals.kernels import KernelNode, choices, input_names, scheduler, set_choices


class FusionGuard(CustomSchedulerPass):
    """A pass to run before fusion: where there is a budget, Inductor asks it about every pair from then on."""

    def __init__(self, options: Options, peaks: FusedPeaks) -> None:
        self._options = options
        self._peaks = peaks

    def __call__(self, nodes: list[KernelNode]) -> list[KernelNode]:
        """Return the nodes as they are."""
        drop_ordering_users()
        capacity = self._peaks.left(input_names())
        outer = choices()
        if isinstance(outer, _Choices):
            outer = outer.outer
        if capacity is None:
            set_choices(outer)
            return nodes
        given = self._peaks.given(input_names())
        graph = graph_of_kernels(nodes, given)
        timeline = FusionTimeline(graph, capacity, _loops(nodes))
        ordered = nodes
        if timeline.peak_bytes > capacity:
            allowed = self._options.techniques & {"reorder"}
            settings = PlanSettings(techniques=allowed, effort=self._options.effort, addresses=False)
            order = find_plan(graph, settings).plan.order()
            ordered = [nodes[place] for place in order.tolist()]
            timeline = FusionTimeline(graph_of_kernels(ordered, given), capacity, _loops(ordered))
        set_choices(_Choices(outer, scheduler(), ordered, timeline))
        return nodes

    def uuid(self) -> str:
        """Return what tells compiled programs apart in Inductor's caches."""
        return f"{identity(self._options)} {self._peaks.identity}"


def _loops(nodes: Sequence[KernelNode]) -> set[OpId]:
    return {op for op, node in enumerate(nodes) if loops_over_reduction(node)}


class _Choices:
    """Inductor's choices, and for one scheduler a limit on what is fused; the rest is left to the choices in force."""

    def __init__(self, outer: Any, scheduler: Any, nodes: Sequence[KernelNode], timeline: FusionTimeline) -> None:
        self.outer = outer
        self._scheduler = scheduler
        self._timeline = timeline
        self._op = {name: op for op, node in enumerate(nodes) for name in node.get_operation_names()}
        self._allowed: tuple[KernelNode, KernelNode] | None = None

    def __getattr__(self, name: str) -> Any:
        """Leave everything else to the choices in force."""
        return getattr(self.outer, name)

    def can_fuse(self, scheduler: Any, node1: KernelNode, node2: KernelNode, shared_data_score: int) -> bool:
        """Tell whether two kernels may become one, as Inductor asks before it looks closer."""
        if not self.outer.can_fuse(scheduler, node1, node2, shared_data_score):
            return False
        if scheduler is not self._scheduler:
            return True
        self._note_fusion()
        allowed = self._timeline.fits(self._ops(node1), self._ops(node2))
        self._allowed = (node1, node2) if allowed else None
        return allowed

    def _note_fusion(self) -> None:
        """Take over the pair that was allowed last, if Inductor fused it."""
        if self._allowed is not None:
            names = [node.get_first_name() for node in self._allowed]
            one, other = (self._scheduler.name_to_fused_node[name] for name in names)
            if one is other:
                self._timeline.fuse(self._ops(one))

    def _ops(self, node: KernelNode) -> list[OpId]:
        return [self._op[name] for name in node.get_operation_names()]
