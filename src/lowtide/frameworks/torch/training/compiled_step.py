"""A planned training step run by Inductor: what the plan runs again runs again there, within the same memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from lowtide.core.effort import EffortName
from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.planning.budget import GivenBudget
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.capture.step.scalar_settings import ScalarSetting
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.compile.fusion.attempts import Attempt, least_excess
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks, KernelsKnownError, warn_of_excess
from lowtide.frameworks.torch.compile.fusion.kernel_graph import KnownInputs
from lowtide.frameworks.torch.compile.fusion.settings import settings
from lowtide.frameworks.torch.emit.apply import Applied
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.fake_tensors import new_fake_mode, tracing_in
from lowtide.frameworks.torch.internals.inductor import compile_boxed
from lowtide.frameworks.torch.internals.nodes import map_nodes, value_of
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.planning.missed_budgets import describe_lowest_peak
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.reading.captured import CaptureMismatchError
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.stored_values import CopyIntoConcatenations, StoreEarlyValues
from lowtide.reporting.shortfall import describe


@dataclass(frozen=True, slots=True)
class StepPlans:
    """How a step is planned for other budgets than its own."""

    whole: Callable[[GivenBudget], Result]
    """Plans it as it stands."""
    in_chunks: Callable[[GivenBudget], tuple[TorchModel, Result] | None]
    """Plans it with its largest products in chunks; None where that is of no use."""


def compiled_step(
    model: TorchModel, result: Result, budget: GivenBudget, effort: EffortName, plans: StepPlans
) -> tuple[Applied, Result, TorchModel]:
    """Return a step compiled, its kernels fused within the budget and in the order of least memory, its plan, and the
    program that the plan is for.

    Without a budget, only the order of the kernels is planned, after fusion. If the kernels need more than the budget,
    the step is planned anew for that much less and compiled again, see `least_excess`; if they still need more, it is
    planned and compiled so in chunks, which PyTorch's own kernels do. What then needs least is taken, and a warning of
    one line says what is too much.
    """
    options = Options(compiler="inductor", budget=budget, effort=effort)
    space = model.graph.spaces[0].name
    allowed = result.budget.allowed[space]
    if allowed is None:
        peaks = _StepPeaks(model, result, None)
        return _compile(model, result, options, peaks), replace(result, fused_peak_bytes=peaks.needed_bytes), model
    persistent = model.graph.persistent_bytes()[space]

    def plan(target: int) -> tuple[TorchModel, Result]:
        return model, plans.whole(target + persistent)

    def plan_in_chunks(target: int) -> tuple[TorchModel, Result] | None:
        return plans.in_chunks(target + persistent)

    best = _least_excess(model, result, options, allowed, plan)
    found = None if best.fits else plan_in_chunks(allowed)
    if found is not None:
        best = min(best, _least_excess(*found, options, allowed, plan_in_chunks), key=lambda each: each.excess_bytes)
    program, taken, applied = best.compiled.program, best.compiled.result, best.compiled.applied
    if applied is None:
        applied = _compile(program, taken, options, _StepPeaks(program, taken, allowed))
    taken = replace(taken, fused_peak_bytes=allowed + best.excess_bytes, budget=result.budget)
    if not best.fits:
        _warn(model.graph, taken, allowed, best.excess_bytes)
    elif taken.shortfall is not None:  # which ops would have, one by one
        taken = replace(taken, shortfall=None, status="feasible")
    return applied, taken, program


@dataclass(frozen=True, slots=True)
class _CompiledPlan:
    """A plan, and what was compiled of it."""

    program: TorchModel
    result: Result
    applied: Applied | None
    """None where that ended once it was known that the kernels need more than the budget."""


def _least_excess(
    model: TorchModel,
    result: Result,
    options: Options,
    allowed: int,
    plan: Callable[[int], tuple[TorchModel, Result] | None],
) -> Attempt[_CompiledPlan]:
    """Return what needs least beyond the budget, of a plan and of plans for other goals."""
    is_least = result.shortfall is not None or not _trades_time(result)

    def attempt(target: int) -> Attempt[_CompiledPlan] | None:
        # a plan for more than the budget would be shown with that peak, which stays within it, too
        found = None if target > allowed else plan(target)
        return None if found is None or found[1].shortfall is not None else _attempt(*found, options, target, allowed)

    return least_excess(replace(_attempt(model, result, options, allowed, allowed), is_least=is_least), attempt)


def _attempt(model: TorchModel, result: Result, options: Options, target: int, allowed: int) -> Attempt[_CompiledPlan]:
    """Compile a plan as long as its kernels are not known to need more than the budget."""
    peaks, applied = _StepPeaks(model, result, allowed, ends=True), None
    try:
        applied = _compile(model, result, options, peaks)
    except UnsupportedError:
        if not peaks.excess_bytes:
            raise
    needed, is_free = result.peak_bytes[model.graph.spaces[0].name], not _trades_time(result)
    candidate = _CompiledPlan(model, result, applied)
    return Attempt(target, candidate, peaks.beyond_bytes, needed, is_least=False, is_free=is_free)


def _warn(graph: Graph, result: Result, allowed: int, excess_bytes: int) -> None:
    """Warn in one line that the kernels need more than the budget: why, and which budgets they meet."""
    space = graph.spaces[0].name
    shortfall = result.shortfall
    why = "once fused, they keep more alive than the plan" if shortfall is None else describe(shortfall)
    persistent, before = result.persistent_bytes[space], result.baseline_peak_bytes[space]
    warn_of_excess(
        graph.name, excess_bytes, f"{why}; {describe_lowest_peak(allowed + excess_bytes, before, persistent)}"
    )


def _compile(model: TorchModel, result: Result, options: Options, peaks: "_StepPeaks") -> Applied:
    applied = model.apply(result.plan, verified=True)
    binding = applied.captured.binding
    if not isinstance(binding, TrainingStepBinding):
        raise UsageError("only a training step is compiled here")
    module = applied.captured.graph_module
    if options.budget is not None and (_trades_time(result) or result.moved_ops):
        module = run_rewrites(applied.module, [StoreEarlyValues(), CopyIntoConcatenations()])
    settings = binding.state.scalars
    values = settings.live(binding.state.optimizer)
    run = compile_step(module, settings.entries, values, options, peaks)
    return Applied(applied.captured, applied.module, run)


def _trades_time(result: Result) -> bool:
    """Tell whether a plan runs ops again or copies, so that one for less may need less."""
    return bool(result.reruns or result.transfers.bytes_out)


class _StepPeaks(FusedPeaks):
    """What the budget leaves to the kernels of one step, beside its batch.

    Donated inputs end at their last use: gradients of calls before, which the last one updates by. If it `ends`, so
    does the compilation where kernels need more than the budget.
    """

    def __init__(self, model: TorchModel, result: Result, allowed: int | None, *, ends: bool = False) -> None:
        super().__init__()
        self._ends = ends
        inputs = enumerate(model.captured.inputs)
        self._donated = [place for place, (_, lifetime) in inputs if lifetime is Lifetime.DONATED]
        self.needed_bytes: int | None = None
        """What the kernels need, and the batch; None until it is known."""
        self._left = self._within_budget = None
        graph = model.graph
        self._batch = int(graph.sizes[(graph.buffer_spaces == 0) & (graph.lifetimes == Lifetime.INPUT)].sum())
        if allowed is not None:
            most = allowed if result.shortfall is None else max(allowed, result.peak_bytes[graph.spaces[0].name])
            self._within_budget = allowed - self._batch
            self._left = most - self._batch

    def left(self, input_names: Sequence[str]) -> int | None:
        """Return what the kernels may need, None where there is no budget."""
        return self._left

    def given(self, input_names: Sequence[str]) -> KnownInputs:
        """Return the inputs that end at their last use."""
        return KnownInputs([input_names[place] for place in self._donated])

    def check(self, input_names: Sequence[str], peak_bytes: int) -> None:
        """Note what the kernels need; raises KernelsKnownError where that ends the compilation."""
        self.needed_bytes = peak_bytes + self._batch
        if self._within_budget is not None and self.note(peak_bytes, self._within_budget) and self._ends:
            raise KernelsKnownError


def compile_step(
    planned: GraphModule, entries: Sequence[ScalarSetting], values: Sequence[float], options: Options, peaks: FusedPeaks
) -> Callable[[list[Any]], list[Any]]:
    """Return a function of the graph's inputs that runs a step compiled; random draws are those of eager.

    `entries` are the settings that are the graph's last inputs, with their present values. Learning rates may change
    from call to call; what the caller gives away ends at its last use. The function raises CaptureMismatchError where
    another setting has changed. What the graph runs again stays apart: kernels are fused within what `peaks` leaves to
    them. Raises UnsupportedError for what Inductor cannot compile, with what to do instead.
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
        changes["fx_graph_cache"] = False  # what the kernels need is known only where they are made
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
    """Return the graph as Inductor takes it, and the settings by place that are constants in it, no inputs.

    A learning rate comes as a tensor, from which the graph reads it.
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
