"""Whether kernels stay within the budget: a fused kernel may keep more alive than the ops it is made of."""

import warnings
from collections.abc import Sequence

import numpy as np
from torch.fx import GraphModule

from lowtide.budget import Budget
from lowtide.frameworks.torch.backend.boundary import TURN_BACK
from lowtide.frameworks.torch.backend.options import Options
from lowtide.frameworks.torch.backend.planning import PlannedModule
from lowtide.graph import Lifetime
from lowtide.units import format_bytes


class FusedPeaks:
    """What the kernels of every planned graph may need, until they are compiled."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._allowed: dict[tuple[str, ...], tuple[str, int]] = {}

    def expect(self, planned: PlannedModule, forward: GraphModule, backward: GraphModule) -> None:
        """Note what the budget leaves to the kernels of both passes, beside what their caller holds meanwhile."""
        graph, result = planned.graph, planned.result
        space = graph.spaces[0].name
        allowed = Budget.parse(self._options.budget, graph, result.baseline_peak_bytes).allowed[space]
        if allowed is None or result.shortfall is not None:
            return
        first = graph.buffer_spaces == 0
        inputs = int(graph.sizes[first & (graph.lifetimes == Lifetime.INPUT)].sum())
        (turn,) = (node.name for node in planned.source.graph.nodes if node.target is TURN_BACK)
        boundary = graph.op_names.index(turn)
        between = np.unique(np.concatenate([graph.reads[boundary], graph.writes[boundary]]))
        held = between[first[between] & (graph.lifetimes[between] >= Lifetime.INTERMEDIATE)]
        left = allowed - inputs
        self._allowed[_inputs_of(forward)] = planned.name, left
        self._allowed[_inputs_of(backward)] = planned.name, left - int(graph.sizes[held].sum())

    def check(self, input_names: Sequence[str], peak_bytes: int) -> None:
        """Warn in one line where the kernels of a graph need more than is left to them."""
        name, left = self._allowed.pop(tuple(input_names), ("", peak_bytes))
        if peak_bytes > left:
            warnings.warn(
                f"lowtide: {name} may need {format_bytes(peak_bytes - left)} more than its budget: Inductor fused "
                "kernels that keep more alive than the plan; give a budget smaller by that",
                stacklevel=2,
            )


def _inputs_of(module: GraphModule) -> tuple[str, ...]:
    return tuple(node.name for node in module.graph.find_nodes(op="placeholder"))
