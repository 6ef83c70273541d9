"""Programs without a backward pass under Inductor: the kernel order, within a budget."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import GraphModule

from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.graph import Graph
from lowtide.engine.planning.budget import budget_bytes, is_part
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.plan_file import result_with
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.compile.fusion.fused_peaks import warn_of_need
from lowtide.frameworks.torch.compile.fusion.kernel_graph import NO_KNOWN_INPUTS
from lowtide.frameworks.torch.compile.fusion.order import CpuFunctions, in_order_of_lowest_peak
from lowtide.frameworks.torch.compile.kernels.kernel_program import BytesAround, graph_of_pass
from lowtide.frameworks.torch.compile.kernels.recorded_pass import recorded_pass
from lowtide.frameworks.torch.internals.aot_autograd import static_inputs
from lowtide.frameworks.torch.internals.inductor import SchedulerPass, compile_fx, overlap_passes
from lowtide.frameworks.torch.internals.kernels import (
    KernelNode,
    bytes_of_inputs,
    is_inference,
    reorders_by_itself,
    source_graph,
)
from lowtide.frameworks.torch.internals.nodes import storages_of, value_of
from lowtide.frameworks.torch.planning.options import Options, identity
from lowtide.frameworks.torch.planning.planned_program import MINOR_BYTES, PlannedModule, limit_to_bucket
from lowtide.frameworks.torch.planning.programs import new_name, register


def compile_forward(module: GraphModule, example_inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    """Compile a captured graph without gradients, in one lowering.

    The order is the better of Inductor's own and the one with the lowest peak. Percentages refer to Inductor's.
    """
    if options.budget is not None:
        limit_to_bucket(example_inputs)
    changes: dict[str, Any] = {
        "reorder_for_peak_memory": reorders_by_itself(),
        "reorder_for_compute_comm_overlap": True,
        "reorder_for_compute_comm_overlap_passes": [*overlap_passes(), ForwardOrder(options)],
        "fx_graph_cache": False,  # a cached graph has no kernels to plan; their code is still cached
    }
    if options.budget is not None:
        changes["allow_buffer_reuse"] = False  # storage kept for a later kernel would count as alive
    return compile_fx(module, example_inputs, changes)


class ForwardOrder(SchedulerPass):
    """A scheduler pass, to run last, that orders and registers the kernels of a program without a backward pass."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._is_done = False

    @property
    def key(self) -> str:
        return f"{type(self).__name__} {identity(self._options)}"

    def __call__(self, nodes: Sequence[KernelNode]) -> list[KernelNode]:
        if not nodes or not is_inference():
            return list(nodes)
        around = _bytes_around()
        own_peak = around.inputs + CpuFunctions.of(nodes, None).peak_bytes
        budget = self._options.budget
        allowed = None if budget is None else budget_bytes(budget, own_peak, around.persistent)
        left = None if allowed is None else allowed - around.inputs
        orders = [nodes]
        if "reorder" in self._options.techniques:
            orders.append(in_order_of_lowest_peak(nodes, self._options))
        found = [(CpuFunctions.of(order, left), order) for order in orders]
        functions, ordered = min(found, key=lambda each: each[0].peak_bytes)
        functions.end_where_full()
        if not self._is_done:
            self._is_done = True
            self._register(ordered, around, own_peak, functions.peak_bytes, allowed)
        return list(ordered)

    def _register(
        self, nodes: Sequence[KernelNode], around: BytesAround, own_peak: int, peak: int, allowed: int | None
    ) -> None:
        module = source_graph()
        recorded = recorded_pass(nodes, NO_KNOWN_INPUTS, {}, peak)
        graph = graph_of_pass(new_name(module.graph), recorded, around)
        needed = around.inputs + peak
        result = _result_of(graph, self._options, allowed, needed)
        planned = PlannedModule(graph.name, module, graph, result, module, own_peak, kernel_peaks=[needed])
        register(planned)
        if allowed is not None and needed > allowed and (needed >= MINOR_BYTES or not is_part(self._options.budget)):
            warn_of_need(planned, needed - allowed, needed)


def _result_of(graph: Graph, options: Options, allowed: int | None, needed: int) -> Result:
    settings = PlanSettings(
        budget=allowed,
        transient=allowed is not None,
        techniques=frozenset({"share"}),
        effort=options.effort,
        addresses=False,
    )
    found = find_plan(graph, replace(settings, budget=None, transient=False))
    plan = found.plan.without_claims()  # fusion may change, so no bound
    missed = None
    if allowed is not None and needed > allowed:
        space = graph.spaces[0].name
        missed = Shortfall(space=space, allowed_bytes=allowed, reached_bytes=needed, cause="not found")
    return result_with(graph, plan, settings, found.scheduler, missed, seconds=found.seconds)


def _bytes_around() -> BytesAround:
    sizes, static = bytes_of_inputs(), static_inputs()
    largest: dict[object, tuple[int, bool]] = {}
    devices: dict[str, int] = {}
    for place, node in enumerate(source_graph().graph.find_nodes(op="placeholder")):
        size = sizes.get(node.name, 0)
        key = next(iter(storages_of(node)), node)
        before, is_static = largest.get(key, (0, False))
        largest[key] = max(before, size), is_static or place in static
        device = str(getattr(value_of(node), "device", "cpu"))
        devices[device] = devices.get(device, 0) + size
    return BytesAround(
        inputs=sum(size for size, is_static in largest.values() if not is_static),
        persistent=sum(size for size, is_static in largest.values() if is_static),
        space=max(devices, key=lambda device: devices[device], default="cpu"),
    )
