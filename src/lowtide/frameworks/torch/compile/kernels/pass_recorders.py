"""Record the kernels of both passes."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
from torch.fx import GraphModule, Node

from lowtide.core.errors import one_line
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.plan_file import result_with
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.compile.fusion.kernel_graph import KnownInputs
from lowtide.frameworks.torch.compile.fusion.order import CpuFunctions
from lowtide.frameworks.torch.compile.kernels.kernel_program import HeldBytes, join_passes
from lowtide.frameworks.torch.compile.kernels.recorded_pass import RecordedPass, recorded_pass
from lowtide.frameworks.torch.internals.inductor import SchedulerPass
from lowtide.frameworks.torch.internals.kernels import KernelNode, KernelStorage, input_names
from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK

_LOG = logging.getLogger("lowtide")


class RecordPasses(SchedulerPass):
    """Records the kernels of each pass."""

    def __init__(self, peaks: FusedPeaks) -> None:
        self._peaks = peaks
        self.passes: list[RecordedPass] = []

    def __call__(self, nodes: Sequence[KernelNode]) -> list[KernelNode]:
        if nodes:
            given = self._peaks.known_inputs(input_names())
            storages = self._peaks.record_outputs(input_names())
            peak = CpuFunctions.of(nodes, None, given).peak_bytes
            self.passes.append(recorded_pass(nodes, given, storages, peak))
            self._peaks.check(input_names(), peak)
        return list(nodes)


class ShowKernels:
    """Adds the kernels of both passes to a program without a budget."""

    def __init__(self, peaks: FusedPeaks) -> None:
        self._peaks = peaks
        self._passes: list[RecordedPass] = []

    def __call__(
        self, nodes: Sequence[KernelNode], given: KnownInputs, storages: Mapping[str, KernelStorage], peak_bytes: int
    ) -> None:
        if not storages or len(self._peaks.planned) != 1:
            return
        try:
            self._passes.append(recorded_pass(nodes, given, storages, peak_bytes))
            if len(self._passes) == len(("forward", "backward")):
                self._show(self._peaks.planned[0], *self._passes)
        except Exception as error:  # only to show; the program compiles without
            _LOG.info("the kernels of %s are not shown: %s", self._peaks.planned[0].name, one_line(error))

    def _show(self, planned: PlannedModule, forward: RecordedPass, backward: RecordedPass) -> None:
        program = join_passes(planned.name, forward, backward, held_bytes(planned), forward_nodes_of(planned.source))
        settings = PlanSettings(techniques=frozenset({"share"}), addresses=False)
        plan = find_plan(program.graph, settings).plan.without_claims()
        result = result_with(program.graph, plan, settings, "given", None)
        planned.kernels.append((program.graph, result))


def forward_nodes_of(source: GraphModule) -> set[str]:
    names = set[str]()
    for node in source.graph.nodes:
        if node.target is TURN_BACK:
            break
        if node.op == "call_function":
            names.add(node.name)
    return names


def held_bytes(planned: PlannedModule) -> HeldBytes:
    """Return the memory around a program's kernels."""
    graph = planned.graph
    (turn,) = (node for node in planned.source.graph.nodes if node.target is TURN_BACK)
    ends: list[Node] = turn.args[0]
    written = graph.writes[graph.op_names.index(turn.name)]
    new = written[(graph.buffer_spaces[written] == 0) & ~graph.exists_at_start[written]]
    return HeldBytes(
        inputs=_bytes_of(graph, Lifetime.INPUT),
        persistent=_bytes_of(graph, Lifetime.PERSISTENT),
        tangents=int(graph.sizes[new].sum()),
        results=frozenset(node.name for node in ends),
        turn=turn.name,
        space=graph.spaces[0].name,
    )


def _bytes_of(graph: Graph, lifetime: Lifetime) -> int:
    return int(graph.sizes[(graph.buffer_spaces == 0) & (graph.lifetimes == lifetime)].sum(dtype=np.int64))
