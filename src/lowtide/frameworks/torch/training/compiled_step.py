"""A planned training step run by Inductor: what the plan runs again runs again there, within the same memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lowtide.core.effort import EffortName
from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.planning.budget import GivenBudget
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.compile.fusion.attempts import Attempt, least_excess
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks, KernelsKnownError, warn_of_excess
from lowtide.frameworks.torch.compile.fusion.known_inputs import KnownInputs
from lowtide.frameworks.torch.compile.missed_budgets import least_reached
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.emit.apply import Applied
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.stored_values import CopyIntoConcatenations, StoreEarlyValues
from lowtide.frameworks.torch.training.compile_step import compile_step
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

    def plan(goal: int) -> tuple[TorchModel, Result]:
        return model, plans.whole(goal + persistent)

    def plan_in_chunks(goal: int) -> tuple[TorchModel, Result] | None:
        return plans.in_chunks(goal + persistent)

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

    def attempt(goal: int) -> Attempt[_CompiledPlan] | None:
        # a plan for more than the budget would be shown with that peak, which stays within it, too
        found = None if goal > allowed else plan(goal)
        return None if found is None or found[1].shortfall is not None else _attempt(*found, options, goal, allowed)

    return least_excess(replace(_attempt(model, result, options, allowed, allowed), is_least=is_least), attempt)


def _attempt(model: TorchModel, result: Result, options: Options, goal: int, allowed: int) -> Attempt[_CompiledPlan]:
    """Compile a plan as long as its kernels are not known to need more than the budget."""
    peaks, applied = _StepPeaks(model, result, allowed, ends=True), None
    try:
        applied = _compile(model, result, options, peaks)
    except UnsupportedError:
        if not peaks.excess_bytes:
            raise
    needed, is_free = result.peak_bytes[model.graph.spaces[0].name], not _trades_time(result)
    candidate = _CompiledPlan(model, result, applied)
    return Attempt(goal, candidate, peaks.beyond_bytes, needed, is_least=False, is_free=is_free)


def _warn(graph: Graph, result: Result, allowed: int, excess_bytes: int) -> None:
    """Warn in one line that the kernels need more than the budget: why, and which budgets they meet."""
    space = graph.spaces[0].name
    shortfall = result.shortfall
    why = "once fused, they keep more alive than the plan" if shortfall is None else describe(shortfall)
    persistent, before = result.persistent_bytes[space], result.baseline_peak_bytes[space]
    warn_of_excess(graph.name, excess_bytes, f"{why}; {least_reached(allowed + excess_bytes, before, persistent)}")


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
