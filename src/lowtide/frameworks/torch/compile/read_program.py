"""A graph of the compiler, read: ops and buffers, and the op between its forward and its backward pass."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch.fx import GraphModule

from lowtide.core.errors import UnsupportedError
from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan import Plan, StepKind
from lowtide.frameworks.torch.compile.convolution_layouts import scratch_under_inductor
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.emit.transfers.link import host_for
from lowtide.frameworks.torch.internals.aot_autograd import input_name, must_save
from lowtide.frameworks.torch.internals.hints import has_data_dependent_size
from lowtide.frameworks.torch.reading.lowering import Lowered, lower
from lowtide.frameworks.torch.reading.read import graph_of
from lowtide.frameworks.torch.reading.scratch import scratch_bytes
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK
from lowtide.frameworks.torch.rewrites.checkpoints import REPEATED


@dataclass(frozen=True, slots=True, eq=False)
class ReadProgram:
    """A program and its graph."""

    module: GraphModule
    lowered: Lowered
    graph: Graph
    inputs: Sequence[tuple[str, Lifetime]]
    """Every input, and how long it lives."""

    @property
    def turn(self) -> OpId | None:
        """The op between the two passes; None in a forward pass alone."""
        return next((place for place, op in enumerate(self.lowered.ops) if op.node.target is TURN_BACK), None)

    def peak_of(self, plan: Plan) -> int:
        """Return the peak of a plan in the first memory space."""
        return simulate(self.graph, plan).peak_bytes[self.graph.spaces[0].name]

    def held_between(self, plan: Plan) -> int:
        """Return what a plan holds in the first memory space between the two passes; 0 for a forward pass alone."""
        turn = self.turn
        if turn is None:
            return 0
        (step,) = np.flatnonzero((plan.kinds == StepKind.RUN) & (plan.targets == turn))
        return int(simulate(self.graph, plan).live[step + 1, 0] - self.graph.scratch[turn])

    def leaving_between(self, others_bytes: int) -> Graph:
        """Return the graph with so much memory left to others between the two passes."""
        scratch = self.graph.scratch.copy()
        if self.turn is not None:
            scratch[self.turn] = others_bytes
        return replace(self.graph, scratch=scratch)

    def returns_only_numbers(self) -> bool:
        """Tell whether the backward pass starts from single numbers, such as a loss: then nothing large runs before."""
        turn = self.turn
        return turn is None or all(value.numel() == 1 for value in self.lowered.ops[turn].node.meta["val"])


def read_program(name: str, module: GraphModule, held: Collection[int], options: Options) -> ReadProgram:
    """Read a functional graph whose inputs at the places `held` outlive it; raises UnsupportedError."""
    for node in module.graph.nodes:
        if has_data_dependent_size(node):
            raise UnsupportedError(f"the size of tensor '{node.name}' depends on values; such graphs are not planned")
    inputs = enumerate(module.graph.find_nodes(op="placeholder"))
    named = [(input_name(node), Lifetime.PERSISTENT if place in held else Lifetime.INPUT) for place, node in inputs]
    lowered = lower(module, named)
    run_once = _held_by_others(lowered) | _must_be_saved(lowered)
    scratch = scratch_under_inductor(module) if options.compiler == "inductor" else scratch_bytes
    graph = graph_of(name, module, lowered, run_once=run_once, after=_in_backward(lowered), scratch=scratch)
    if "offload" in options.techniques:
        graph = host_for(graph, options.host_bandwidth, options.host_capacity).added_to(graph)
    return ReadProgram(module, lowered, graph, named)


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
