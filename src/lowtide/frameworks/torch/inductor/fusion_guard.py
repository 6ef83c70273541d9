"""Fusion within the budget: kernels that would keep too much alive together stay apart."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any

from torch._inductor.custom_graph_pass import CustomSchedulerPass
from torch._inductor.virtualized import V

from lowtide.frameworks.torch.backend.options import Options
from lowtide.frameworks.torch.inductor.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.inductor.fusion_timeline import FusionTimeline
from lowtide.frameworks.torch.inductor.identity import identity
from lowtide.frameworks.torch.inductor.kernel_graph import KernelNode, graph_of_kernels
from lowtide.pipeline import minimize


class FusionGuard(CustomSchedulerPass):
    """A pass to run before fusion: where there is a budget, Inductor asks it about every pair from then on."""

    def __init__(self, options: Options, peaks: FusedPeaks) -> None:
        self._options = options
        self._peaks = peaks

    def __call__(self, nodes: list[KernelNode]) -> list[KernelNode]:
        """Return the nodes as they are."""
        capacity = self._peaks.left(V.graph.graph_input_names)
        outer = V.choices.outer if isinstance(V.choices, _Choices) else V.choices
        if capacity is None:
            V.set_choices_handler(outer)
            return nodes
        graph = graph_of_kernels(nodes)
        timeline = FusionTimeline(graph, capacity)
        ordered = nodes
        if timeline.peak_bytes > capacity:
            order = minimize(graph, allow={"reorder"} & self._options.means, effort=self._options.effort).plan.order()
            ordered = [nodes[place] for place in order.tolist()]
            timeline = FusionTimeline(graph_of_kernels(ordered), capacity)
        V.set_choices_handler(_Choices(outer, V.graph.scheduler, ordered, timeline))
        return nodes

    def uuid(self) -> str:
        """Return what tells compiled programs apart in Inductor's caches."""
        return identity(self._options)


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

    def _ops(self, node: KernelNode) -> list[int]:
        return [self._op[name] for name in node.get_operation_names()]
