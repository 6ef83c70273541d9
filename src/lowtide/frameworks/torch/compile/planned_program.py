"""A graph that the compiler is about to compile, planned and written down again in the order of its plan."""

import logging
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from torch.fx import GraphModule, Node

from lowtide.frameworks.graph_file import GraphModel
from lowtide.frameworks.torch.compile.distributed.agreement import partners, require_agreement
from lowtide.frameworks.torch.compile.distributed.plan_folder import digest_of, load_plan
from lowtide.frameworks.torch.compile.identity import identity
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.emit.emit import emit
from lowtide.frameworks.torch.emit.transfers.link import host_for
from lowtide.frameworks.torch.internals.aot_autograd import must_save
from lowtide.frameworks.torch.reading.lowering import Lowered, lower
from lowtide.frameworks.torch.reading.read import graph_of
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK
from lowtide.frameworks.torch.rewrites.checkpoints import REPEATED
from lowtide.graph import Graph, Lifetime
from lowtide.index_spaces import BufferId, OpId
from lowtide.planning.minimize import find_plan
from lowtide.planning.result import Result
from lowtide.units import format_bytes

_LOG = logging.getLogger("lowtide")


@dataclass(frozen=True, slots=True, eq=False)
class PlannedModule:
    """A program of the compiler, its graph and its plan."""

    name: str
    source: GraphModule
    """The program before planning; its nodes know the user's source lines."""
    graph: Graph
    result: Result
    module: GraphModule
    """The program in the order of the plan."""
    kernel_peaks: list[int] = field(default_factory=list[int])
    """Under Inductor, the predicted peak of every pass compiled so far: bytes on the first device after fusion, with
    all that the callers hold. Passes from a cache are missing."""

    @property
    def predicted_peak_bytes(self) -> dict[str, int]:
        """The peak of every memory space: the kernels' where they are known, else the plan's."""
        peaks = dict(self.result.peak_bytes)
        if self.kernel_peaks:
            peaks[self.graph.spaces[0].name] = max(self.kernel_peaks)
        return peaks


def plan_module(name: str, module: GraphModule, lifetimes: dict[Node, Lifetime], options: Options) -> PlannedModule:
    """Plan a functional graph, `lifetimes` per placeholder; warns in one line where the budget is not met.

    Raises UnsupportedError for what cannot be planned, FingerprintError where ranks have different graphs, or the
    folder of plans has none for this one.
    """
    lowered = lower(module, [(node.name, lifetime) for node, lifetime in lifetimes.items()])
    graph = graph_of(
        name, module, lowered, run_once=_held_by_others(lowered) | _must_be_saved(lowered), after=_in_backward(lowered)
    )
    if "offload" in options.techniques:
        graph = host_for(graph, options.host_bandwidth, options.host_capacity).added_to(graph)
    result = _result(graph, module, options)
    _report(name, graph, result)
    return PlannedModule(name, module, graph, result, emit(module, lowered, result.plan, boxed=False))


def _result(graph: Graph, module: GraphModule, options: Options) -> Result:
    """Return a plan made now, or read from a folder of plans; ranks agree on the graph first."""
    together = partners(module, options.same_on_all_ranks)
    if options.plans is not None:
        loaded = load_plan(GraphModel(graph), Path(options.plans), options.settings)
        if together is not None:
            require_agreement(graph, digest_of(loaded.plan), *together)
        return loaded
    if together is not None:
        require_agreement(graph, identity(options), *together)
    return find_plan(graph, options.settings)


def _held_by_others(lowered: Lowered) -> set[BufferId]:
    """Return the buffers that the caller holds from the end of the forward pass on."""
    return {buffer for op in lowered.ops if op.node.target is TURN_BACK for buffer in op.reads}


def _in_backward(lowered: Lowered) -> dict[OpId, list[OpId]]:
    """Return the boundary as what every repeated op must run after: if it ran before, its result would be saved."""
    boundary = [place for place, op in enumerate(lowered.ops) if op.node.target is TURN_BACK]
    return {place: boundary for place, op in enumerate(lowered.ops) if REPEATED in op.node.meta}


def _must_be_saved(lowered: Lowered) -> set[BufferId]:
    """Return the buffers that a policy of selective checkpointing says to keep."""
    return {buffer for node, buffers in lowered.buffers_of.items() if must_save(node) for buffer in buffers}


def _report(name: str, graph: Graph, result: Result) -> None:
    space = graph.spaces[0].name
    _LOG.info(
        "%s: peak %s on %s (untouched %s), %d runs repeated for %.1f %% more time, %s",
        name,
        format_bytes(result.peak_bytes[space]),
        space,
        format_bytes(result.baseline_peak_bytes[space]),
        result.reruns,
        100 * result.extra_cost / result.base_cost if result.base_cost else 0.0,
        result.status,
    )
    if result.shortfall is not None:
        warnings.warn(f"lowtide: {name} does not fit its budget: {result.shortfall}", stacklevel=2)
