"""A compiler's graph as ops and buffers, with the boundary between passes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node

from lowtide.core.errors import UnsupportedError
from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan import Plan, StepKind
from lowtide.frameworks.torch.emit.transfers import host_for
from lowtide.frameworks.torch.internals.aot_autograd import input_name, must_save
from lowtide.frameworks.torch.internals.hints import has_data_dependent_size, hinted_value_of, stand_in
from lowtide.frameworks.torch.internals.inductor import lays_images_out
from lowtide.frameworks.torch.internals.nodes import compute_fake
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.reading.lowering import Lowered, lower
from lowtide.frameworks.torch.reading.read import graph_of, sizes_graph
from lowtide.frameworks.torch.reading.scratch import scratch_bytes
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK
from lowtide.frameworks.torch.rewrites.checkpoints import REPEATED


@dataclass(frozen=True, slots=True, eq=False)
class ReadProgram:
    module: GraphModule
    lowered: Lowered
    graph: Graph
    inputs: Sequence[tuple[str, Lifetime]]

    @property
    def boundary(self) -> OpId | None:
        """The op between the passes; None in inference."""
        return next((place for place, op in enumerate(self.lowered.ops) if op.node.target is TURN_BACK), None)

    def peak_of(self, plan: Plan) -> int:
        return simulate(self.graph, plan).peak_bytes[self.graph.spaces[0].name]

    def bytes_between_passes(self, plan: Plan) -> int:
        """Return a plan's bytes in the first memory space; 0 in inference."""
        boundary = self.boundary
        if boundary is None:
            return 0
        (step,) = np.flatnonzero((plan.kinds == StepKind.RUN) & (plan.targets == boundary))
        return int(simulate(self.graph, plan).live[step + 1, 0] - self.graph.scratch[boundary])

    def with_bytes_between(self, others_bytes: int) -> Graph:
        scratch = self.graph.scratch.copy()
        if self.boundary is not None:
            scratch[self.boundary] = others_bytes
        return replace(self.graph, scratch=scratch)

    def has_scalar_tangents(self) -> bool:
        """Return whether backward starts from scalars, so no large graph runs before it."""
        boundary = self.boundary
        return boundary is None or all(value.numel() == 1 for value in self.lowered.ops[boundary].node.meta["val"])


def read_program(name: str, module: GraphModule, held: Collection[int], options: Options) -> ReadProgram:
    """Read a functional graph; inputs at positions `held` outlive it. Raises UnsupportedError."""
    named, lowered = _lowered(module, held)
    run_once = _held_by_others(lowered) | _must_be_saved(lowered)
    scratch = scratch_under_inductor(module) if options.compiler == "inductor" else scratch_bytes
    graph = graph_of(name, module, lowered, run_once=run_once, after=_in_backward(lowered), scratch=scratch)
    if "offload" in options.techniques:
        graph = host_for(graph, options.host_bandwidth, options.host_capacity).added_to(graph)
    return ReadProgram(module, lowered, graph, named)


def read_sizes(name: str, module: GraphModule, held: Collection[int]) -> Graph:
    """Read the accesses and sizes of a graph without calls of other graphs."""
    return sizes_graph(name, _lowered(module, held)[1])


def _lowered(module: GraphModule, held: Collection[int]) -> tuple[list[tuple[str, Lifetime]], Lowered]:
    for node in module.graph.nodes:
        if has_data_dependent_size(node):
            raise UnsupportedError(f"the size of tensor '{node.name}' depends on values; such graphs cannot be planned")
    inputs = enumerate(module.graph.find_nodes(op="placeholder"))
    named = [(input_name(node), Lifetime.PERSISTENT if place in held else Lifetime.INPUT) for place, node in inputs]
    return named, lower(module, named)


def _held_by_others(lowered: Lowered) -> set[BufferId]:
    return {buffer for op in lowered.ops if op.node.target is TURN_BACK for buffer in op.reads}


def _in_backward(lowered: Lowered) -> dict[OpId, list[OpId]]:
    """Map repeated ops to the boundary: before it, their results would be saved."""
    boundary = [place for place, op in enumerate(lowered.ops) if op.node.target is TURN_BACK]
    return {place: boundary for place, op in enumerate(lowered.ops) if REPEATED in op.node.meta}


def _must_be_saved(lowered: Lowered) -> set[BufferId]:
    return {buffer for node, buffers in lowered.buffers_of.items() if must_save(node) for buffer in buffers}


_CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)
_CHANNELS_LAST = (0, 2, 3, 1)


def scratch_under_inductor(module: GraphModule) -> Callable[[Node], int]:
    """Return `scratch_bytes` for Inductor, which stores images channels-last and copies weights after planning."""
    if not lays_images_out(module):
        return scratch_bytes
    return lambda node: scratch_bytes(node, _laid_out if node.target in _CONVOLUTIONS else hinted_value_of)


def _laid_out(node: Node) -> Any:
    value = hinted_value_of(node)
    is_image = isinstance(value, torch.Tensor) and value.dim() == len(_CHANNELS_LAST)
    if not is_image or node.op != "call_function":
        return value
    if node.target is torch.ops.aten.slice.Tensor:  # shares the storage of a concatenation
        return compute_fake(node, _laid_out)
    strides, step = [0] * value.dim(), 1
    for dimension in reversed(_CHANNELS_LAST):
        strides[dimension] = step
        step *= value.shape[dimension]
    return stand_in(value.shape, strides, value.dtype, value.device)
