"""Memory left to planned graphs' kernels, and their needs after fusion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node

from lowtide.core.units import format_bytes
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.compile.fusion.kernel_graph import NO_KNOWN_INPUTS, KnownInputs
from lowtide.frameworks.torch.internals.inductor import SchedulerPass
from lowtide.frameworks.torch.internals.kernels import (
    KernelNode,
    KernelStorage,
    Strides,
    input_strides,
    output_storages,
    output_strides,
)
from lowtide.frameworks.torch.internals.nodes import is_symbol, outputs_of, value_of
from lowtide.frameworks.torch.planning.missed_budgets import describe_lowest_peak, warn_missed
from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK
from lowtide.reporting.shortfall import describe


class KernelsKnownError(Exception):
    """Raised to stop a compilation before code generation."""


@dataclass(frozen=True)
class _Pass:
    planned: PlannedModule
    held_bytes: int
    left_bytes: int | None
    misses: bool
    strides: Mapping[str, tuple[int, ...]]
    saved: dict[str, KernelStorage]
    results: dict[str, KernelStorage]
    outputs: Sequence[str]


class FusedPeaks:
    """Budgets and needs of planned graphs' kernels, until they are compiled.

    `allowed` replaces the programs' own targets. With `stops_at`, kernels over the budget stop the compilation, unless
    their plan misses it anyway and they need less than `stops_at`. With `silent`, the caller warns.
    """

    def __init__(self, allowed: int | None = None, *, stops_at: int | None = None, silent: bool = False) -> None:
        self._allowed = allowed
        self._stops_at = stops_at
        self._silent = silent
        self._passes: dict[tuple[str, ...], _Pass] = {}
        self.excess_bytes = 0
        self._least_left: int | None = None
        self.planned: list[PlannedModule] = []

    def __deepcopy__(self, memo: object) -> "FusedPeaks":
        return self

    @property
    def beyond_bytes(self) -> int:
        """The largest excess; negative if all passes leave some bytes."""
        return self.excess_bytes or -(self._least_left or 0)

    @property
    def identity(self) -> str:
        return f"{self._allowed} {self._stops_at}"

    def expect(self, planned: PlannedModule, forward: GraphModule, backward: GraphModule, n_outputs: int) -> None:
        graph, result = planned.graph, planned.result
        allowed = goal = result.budget.allowed[graph.spaces[0].name]
        if allowed is not None and self._allowed is not None:
            allowed = self._allowed
        misses = result.shortfall is not None or (goal or 0) > (allowed or 0)
        first = graph.buffer_spaces == 0
        inputs = int(graph.sizes[first & (graph.lifetimes == Lifetime.INPUT)].sum())
        (turn,) = (node.name for node in planned.source.graph.nodes if node.target is TURN_BACK)
        boundary = graph.op_names.index(turn)
        between = np.unique(np.concatenate([graph.reads[boundary], graph.writes[boundary]]))
        held = between[first[between] & ~graph.exists_at_start[between]]
        kept = {forward: inputs, backward: inputs + int(graph.sizes[held].sum())}
        self.planned.append(planned)
        saved: dict[str, KernelStorage] = {}
        outputs = _output_names(forward, backward, n_outputs)
        for module, bytes_held in kept.items():
            left = None if allowed is None else allowed - bytes_held
            given, made, names = dict[str, KernelStorage](), saved, outputs
            if module is backward:
                given, made, names = made, given, list(map(_name_of, outputs_of(backward)))
            known = _Pass(planned, bytes_held, left, misses, _strides_of(module), given, made, names)
            self._passes[_inputs_of(module)] = known

    def keeps_order(self, input_names: Sequence[str]) -> bool:
        """Return whether copies run behind kernels, which must stay in order."""
        expected = self._passes.get(tuple(input_names))
        return expected is not None and bool(expected.planned.result.transfers.bytes_out)

    def kernel_budget(self, input_names: Sequence[str]) -> int | None:
        """Return the bytes left to kernels; None without a plan or budget."""
        expected = self._passes.get(tuple(input_names))
        return None if expected is None else expected.left_bytes

    def known_inputs(self, input_names: Sequence[str]) -> KnownInputs:
        """Return facts about the inputs of the graph being compiled.

        A copy in a convolution's layout is freed at its last use, although the caller keeps the input of that name.
        """
        expected = self._passes.get(tuple(input_names))
        if expected is None:
            return NO_KNOWN_INPUTS
        found = input_strides()
        copies = [name for name, strides in expected.strides.items() if found.get(name, strides) != strides]
        return KnownInputs(copies, expected.saved)

    def record_outputs(self, input_names: Sequence[str]) -> Mapping[str, KernelStorage]:
        """Record the result storages of the graph being compiled."""
        expected = self._passes.get(tuple(input_names))
        if expected is None:
            return {}
        expected.results.update(output_storages(expected.outputs))
        return expected.results

    def check(self, input_names: Sequence[str], peak_bytes: int) -> None:
        """Record a graph's needs; warn if they exceed the bytes left, or raise KernelsKnownError."""
        expected = self._passes.pop(tuple(input_names), None)
        if expected is None:
            return
        planned = expected.planned
        needed = expected.held_bytes + peak_bytes
        planned.kernel_peaks.append(needed)
        before = self.excess_bytes
        excess = 0 if expected.left_bytes is None else self.record(peak_bytes, expected.left_bytes)
        if excess and self._stops_at is not None and (not expected.misses or needed >= self._stops_at):
            raise KernelsKnownError
        if self.excess_bytes > before and not self._silent:
            warn_of_need(planned, excess, needed)

    def record(self, peak_bytes: int, left_bytes: int) -> int:
        left = max(0, left_bytes - peak_bytes)
        self._least_left = left if self._least_left is None else min(left, self._least_left)
        excess = max(0, peak_bytes - left_bytes)
        self.excess_bytes = max(excess, self.excess_bytes)
        return excess


_KEEP_MORE = "Inductor's kernels keep more alive than the plan"


def warn_of_excess(name: str, excess_bytes: int, why: str = _KEEP_MORE, own_peak_bytes: int | None = None) -> None:
    alone = "" if own_peak_bytes is None else f" (Inductor alone needs {format_bytes(own_peak_bytes)})"
    warn_missed(f"lowtide: {name} may need {format_bytes(excess_bytes)} more than its budget{alone}: {why}")


def warn_of_need(planned: PlannedModule, excess_bytes: int, needed_bytes: int, why: str | None = None) -> None:
    """Warn with the budget that kernels meet; `why` defaults to the plan's shortfall."""
    alone, shortfall = planned.own_peak_bytes, planned.result.shortfall
    said = why or (_KEEP_MORE if shortfall is None else _reason(shortfall))
    persistent = planned.graph.persistent_bytes()[planned.graph.spaces[0].name]
    met = describe_lowest_peak(needed_bytes, alone or 0, persistent)
    warn_of_excess(planned.name, excess_bytes, f"{said}; {met}", alone)


def _reason(shortfall: Shortfall) -> str:
    """Return why a plan misses; ops before fusion prove nothing about kernels."""
    return describe(shortfall) if shortfall.cause == "persistent buffers" else "no plan found needs less"


def _strides_of(module: GraphModule) -> dict[str, tuple[int, ...]]:
    values = {node.name: value_of(node) for node in module.graph.find_nodes(op="placeholder")}
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    strides = {name: tuple(value.stride()) for name, value in tensors.items() if value.layout == torch.strided}
    return {name: steps for name, steps in strides.items() if all(type(step) is int for step in steps)}


def _inputs_of(module: GraphModule) -> tuple[str, ...]:
    return tuple(node.name for node in module.graph.find_nodes(op="placeholder"))


def _output_names(forward: GraphModule, backward: GraphModule, n_outputs: int) -> list[str]:
    """Return the names of results. The forward pass returns symbols last; the backward pass takes them first."""
    outputs = outputs_of(forward)
    saved = outputs[n_outputs:]
    n_symbols = sum(isinstance(node, Node) and is_symbol(node) for node in saved)
    taken = _inputs_of(backward)[: len(saved)]
    return [*map(_name_of, outputs[:n_outputs]), *taken[n_symbols:], *taken[:n_symbols]]


def _name_of(output: Any) -> str:
    return output.name if isinstance(output, Node) else ""


class StopAfterScheduling(SchedulerPass):
    """A scheduler pass, to run last, that stops the compilation."""

    def __init__(self) -> None:
        self._strides: Strides | None = None

    def take_strides(self) -> Strides | None:
        strides, self._strides = self._strides, None
        return strides

    def __call__(self, _nodes: Sequence[KernelNode]) -> list[KernelNode]:
        self._strides = output_strides()
        raise KernelsKnownError
