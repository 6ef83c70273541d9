"""What the kernels of planned graphs may need, and what they do need once Inductor has fused them."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch.fx import GraphModule

from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.planned_program import PlannedModule
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK
from lowtide.graph import Lifetime
from lowtide.units import format_bytes


@dataclass(frozen=True)
class _Pass:
    """One pass of a planned program, until its kernels are known."""

    planned: PlannedModule
    held_bytes: int
    """What its caller holds meanwhile."""
    left_bytes: int | None
    """What is left to its kernels; None without a budget."""


class FusedPeaks:
    """What the kernels of every planned graph may need, until they are compiled."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._passes: dict[tuple[str, ...], _Pass] = {}

    def expect(self, planned: PlannedModule, forward: GraphModule, backward: GraphModule) -> None:
        """Note what the budget leaves to the kernels of both passes, beside what their caller holds meanwhile.

        Where the plan does not fit its budget, they may need as much as the plan.
        """
        graph, result = planned.graph, planned.result
        space = graph.spaces[0].name
        allowed = result.budget.allowed[space]
        if allowed is not None:
            allowed = max(allowed, result.peak_bytes[space])
        first = graph.buffer_spaces == 0
        inputs = int(graph.sizes[first & (graph.lifetimes == Lifetime.INPUT)].sum())
        (turn,) = (node.name for node in planned.source.graph.nodes if node.target is TURN_BACK)
        boundary = graph.op_names.index(turn)
        between = np.unique(np.concatenate([graph.reads[boundary], graph.writes[boundary]]))
        held = between[first[between] & ~graph.exists_at_start[between]]
        kept = {forward: inputs, backward: inputs + int(graph.sizes[held].sum())}
        for module, bytes_held in kept.items():
            left = None if allowed is None else allowed - bytes_held
            self._passes[_inputs_of(module)] = _Pass(planned, bytes_held, left)

    def left(self, input_names: Sequence[str]) -> int | None:
        """Return what the kernels of a graph may need; None where there is no budget, or the graph was not planned."""
        expected = self._passes.get(tuple(input_names))
        return None if expected is None else expected.left_bytes

    def check(self, input_names: Sequence[str], peak_bytes: int) -> None:
        """Note what the kernels of a graph need; warns in one line where that is more than is left to them.

        Where the plan itself does not fit, that has been said.
        """
        expected = self._passes.pop(tuple(input_names), None)
        if expected is None:
            return
        expected.planned.kernel_peaks.append(expected.held_bytes + peak_bytes)
        fits = expected.planned.result.shortfall is None
        if fits and expected.left_bytes is not None and peak_bytes > expected.left_bytes:
            warn_of_excess(expected.planned.name, peak_bytes - expected.left_bytes)


def warn_of_excess(name: str, excess_bytes: int) -> None:
    """Warn in one line that the kernels of a program need more than its budget."""
    warnings.warn(
        f"lowtide: {name} may need {format_bytes(excess_bytes)} more than its budget: Inductor's kernels keep more "
        "alive than the plan; give a budget smaller by that",
        stacklevel=3,
    )


def _inputs_of(module: GraphModule) -> tuple[str, ...]:
    return tuple(node.name for node in module.graph.find_nodes(op="placeholder"))
