"""A planned training step compiled by Inductor, with the plan's recomputation and within its budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.capture.step.optimizer_state import ScalarSetting
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.compile.fusion.attempts import Attempt, least_excess
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks, KernelsKnownError, warn_of_excess
from lowtide.frameworks.torch.compile.fusion.kernel_graph import KnownInputs
from lowtide.frameworks.torch.compile.fusion.settings import settings
from lowtide.frameworks.torch.emit.apply import Applied
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.compiling import one_at_a_time
from lowtide.frameworks.torch.internals.fake_tensors import new_fake_mode, tracing_in
from lowtide.frameworks.torch.internals.inductor import compile_boxed
from lowtide.frameworks.torch.internals.nodes import map_nodes, value_of
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.planning.missed_budgets import describe_lowest_peak
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.reading.captured import CaptureMismatchError
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.stored_values import CopyIntoConcatenations, StoreEarlyValues
from lowtide.frameworks.torch.training.step_request import StepRequest
from lowtide.reporting.shortfall import describe


def compiled_step(model: TorchModel, result: Result, request: StepRequest) -> tuple[Applied, Result, TorchModel]:
    """Return a step compiled within its budget, its plan, and the program of the plan.

    Without a budget, only the order of the fused kernels is planned. If the kernels exceed the budget, the step is
    planned for smaller targets, see `least_excess`, and then in chunks, which run as PyTorch's own kernels. The version
    with the smallest excess is returned, and a missed budget is a warning of one line.
    """
    options = Options(compiler="inductor", budget=request.budget, effort=request.effort)
    space = model.graph.spaces[0].name
    allowed = result.budget.allowed[space]
    if allowed is None:
        peaks = _StepPeaks(model, result, None)
        return _compile(model, result, options, peaks), replace(result, fused_peak_bytes=peaks.needed_bytes), model
    persistent = model.graph.persistent_bytes()[space]
    attempts = _Attempts(model, options, allowed)
    best = attempts.least_excess(result, lambda target: request.plan(model, target + persistent))
    chunked = None if best.fits else request.plan_in_chunks(model, allowed + persistent)
    if chunked is not None:
        found = attempts.least_excess(chunked, lambda target: request.plan_in_chunks(model, target + persistent))
        best = min(best, found, key=lambda each: each.excess_bytes)
    chosen, applied = best.compiled.result, best.compiled.applied
    if applied is None:
        applied = _compile(model, chosen, options, _StepPeaks(model, chosen, allowed))
    chosen = replace(chosen, fused_peak_bytes=allowed + best.excess_bytes, budget=result.budget)
    if not best.fits:
        _warn(model.graph, chosen, allowed, best.excess_bytes)
    elif chosen.shortfall is not None:  # unfused ops would miss the budget
        chosen = replace(chosen, shortfall=None, status="feasible")
    return applied, chosen, model


@dataclass(frozen=True, slots=True)
class _CompiledPlan:
    result: Result
    applied: Applied | None


@dataclass(frozen=True, slots=True)
class _Attempts:
    model: TorchModel
    options: Options
    allowed: int

    def least_excess(self, first: Result, plan: Callable[[int], Result | None]) -> Attempt[_CompiledPlan]:
        """Return the attempt with the smallest excess, of a first plan and of plans for other targets."""
        is_least = first.shortfall is not None or not _trades_time(first)

        def attempt(target: int) -> Attempt[_CompiledPlan] | None:
            # a plan above the budget would be reported with its higher peak, although its kernels fit
            found = None if target > self.allowed else plan(target)
            return None if found is None or found.shortfall is not None else self._attempt(found, target)

        return least_excess(replace(self._attempt(first, self.allowed), is_least=is_least), attempt)

    def _attempt(self, result: Result, target: int) -> Attempt[_CompiledPlan]:
        peaks, applied = _StepPeaks(self.model, result, self.allowed, ends=True), None
        try:
            applied = _compile(self.model, result, self.options, peaks)
        except UnsupportedError:
            if not peaks.excess_bytes:
                raise
        needed, is_free = result.peak_bytes[self.model.graph.spaces[0].name], not _trades_time(result)
        candidate = _CompiledPlan(result, applied)
        return Attempt(target, candidate, peaks.beyond_bytes, needed, is_least=False, is_free=is_free)


def _warn(graph: Graph, result: Result, allowed: int, excess_bytes: int) -> None:
    space = graph.spaces[0].name
    shortfall = result.shortfall
    why = "fused kernels keep more alive than the plan" if shortfall is None else describe(shortfall)
    persistent, before = result.persistent_bytes[space], result.baseline_peak_bytes[space]
    warn_of_excess(
        graph.name, excess_bytes, f"{why}; {describe_lowest_peak(allowed + excess_bytes, before, persistent)}"
    )


@one_at_a_time
def _compile(model: TorchModel, result: Result, options: Options, peaks: "_StepPeaks") -> Applied:
    applied = model.apply(result.plan, verified=True)
    binding = applied.captured.binding
    if not isinstance(binding, TrainingStepBinding):
        raise UsageError("only training steps can be compiled here")
    module = applied.captured.graph_module
    if options.budget is not None and (_trades_time(result) or result.moved_ops):
        module = run_rewrites(applied.module, [StoreEarlyValues(), CopyIntoConcatenations()])
    scalars = binding.state.scalars
    values = scalars.live(binding.state.optimizer)
    run = compile_step(module, scalars.entries, values, options, peaks)
    return Applied(applied.captured, applied.module, run)


def _trades_time(result: Result) -> bool:
    return bool(result.reruns or result.transfers.bytes_out)


class _StepPeaks(FusedPeaks):
    """Bytes left to the kernels of one step, without its batch.

    Donated inputs, such as gradients of earlier calls, are freed at their last use. With `ends`, kernels over the
    budget stop the compilation.
    """

    def __init__(self, model: TorchModel, result: Result, allowed: int | None, *, ends: bool = False) -> None:
        super().__init__()
        self._ends = ends
        inputs = enumerate(model.captured.inputs)
        self._donated = [place for place, (_, lifetime) in inputs if lifetime is Lifetime.DONATED]
        self.needed_bytes: int | None = None
        self._left = self._within_budget = None
        graph = model.graph
        self._batch = int(graph.sizes[(graph.buffer_spaces == 0) & (graph.lifetimes == Lifetime.INPUT)].sum())
        if allowed is not None:
            most = allowed if result.shortfall is None else max(allowed, result.peak_bytes[graph.spaces[0].name])
            self._within_budget = allowed - self._batch
            self._left = most - self._batch

    def kernel_budget(self, input_names: Sequence[str]) -> int | None:
        return self._left

    def known_inputs(self, input_names: Sequence[str]) -> KnownInputs:
        return KnownInputs([input_names[place] for place in self._donated])

    def check(self, input_names: Sequence[str], peak_bytes: int) -> None:
        """Record needs; may raise KernelsKnownError."""
        self.needed_bytes = peak_bytes + self._batch
        if self._within_budget is not None and self.record(peak_bytes, self._within_budget) and self._ends:
            raise KernelsKnownError


def compile_step(
    planned: GraphModule, entries: Sequence[ScalarSetting], values: Sequence[float], options: Options, peaks: FusedPeaks
) -> Callable[[list[Any]], list[Any]]:
    """Return a function of the graph's inputs that runs a compiled step with the random draws of eager.

    `entries` are the settings among the last inputs, with their present `values`. The function raises
    CaptureMismatchError if a setting other than a learning rate changed. Raises UnsupportedError if Inductor fails.
    """
    graph, constants = _for_inductor(planned, entries, values)
    mode = new_fake_mode()
    module = GraphModule(planned, graph)
    placeholders = planned.graph.find_nodes(op="placeholder")
    settings_from = len(placeholders) - len(entries)
    with mode:
        inputs = [_stand_in(value_of(node)) for place, node in enumerate(placeholders) if place not in constants]
    changes = {**settings(options, peaks), "fallback_random": True}
    if options.budget is not None:
        changes["fx_graph_cache"] = False  # cached kernels would not report their needs
    not_merged = {"cse": False, "enable_autograd_cache": False}
    try:
        with torch.no_grad(), tracing_in(mode), patched_autograd(not_merged):
            compiled = compile_boxed(module, inputs, changes)
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no message"]
        raise UnsupportedError(
            f"Inductor cannot compile the step: {type(error).__name__}: {lines[0]}; use compiler='eager'"
        ) from error

    rates = {
        place: torch.empty((), dtype=torch.float64)
        for place in range(settings_from, len(placeholders))
        if place not in constants
    }

    def run(sources: list[Any]) -> list[Any]:
        if any(sources[place] != value for place, value in constants.items()):
            raise CaptureMismatchError("the optimizer's settings changed since the step was compiled; capture again")
        given = [
            rates[place].fill_(source) if place in rates else source
            for place, source in enumerate(sources)
            if place not in constants
        ]
        sources.clear()
        with torch.no_grad():
            return list(compiled(given))

    return run


def _for_inductor(
    module: GraphModule, entries: Sequence[ScalarSetting], values: Sequence[float]
) -> tuple[FxGraph, dict[int, float]]:
    """Return the graph for Inductor, and by position the settings that are constants in it.

    A learning rate is passed as a tensor, from which the graph reads the number.
    """
    graph = FxGraph()
    placeholders = module.graph.find_nodes(op="placeholder")
    first = len(placeholders) - len(entries)
    settings_by_place = dict(enumerate(zip(entries, values, strict=True), first))
    constants = {place: float(value) for place, (entry, value) in settings_by_place.items() if entry.key != "lr"}
    copies: dict[Node, Any] = {
        node: constants[place] if place in constants else graph.placeholder(node.name)
        for place, node in enumerate(placeholders)
    }
    for place in sorted(settings_by_place.keys() - constants.keys()):
        rate = copies[placeholders[place]]
        copies[placeholders[place]] = graph.call_function(torch.ops.aten._local_scalar_dense.default, (rate,))
    for node in module.graph.nodes:
        if node.op == "placeholder":
            continue
        args, kwargs = map_nodes((node.args, dict(node.kwargs)), copies.__getitem__)
        copies[node] = graph.create_node(node.op, node.target, args, kwargs, name=node.name)
    return graph, constants


def _stand_in(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        return torch.empty((), dtype=torch.float64)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
