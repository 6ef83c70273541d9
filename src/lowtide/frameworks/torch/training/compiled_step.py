"""A planned training step run by Inductor: what the plan runs again runs again there, within the same memory."""

from collections.abc import Callable, Sequence

from lowtide.effort import EffortName
from lowtide.errors import UsageError
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.compile.fusion.attempts import Attempt, least_excess
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks, warn_of_excess
from lowtide.frameworks.torch.compile.missed_budgets import least_reached, reason
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.emit.apply import Applied
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.stored_values import StoreEarlyValues
from lowtide.frameworks.torch.training.compile_step import compile_step
from lowtide.graph import Graph, Lifetime
from lowtide.planning.budget import GivenBudget
from lowtide.planning.result import Result


def compiled_step(
    model: TorchModel, result: Result, budget: GivenBudget, effort: EffortName, plan: Callable[[GivenBudget], Result]
) -> tuple[Applied, Result]:
    """Return a step compiled, its kernels fused within the budget and in the order of least memory, and its plan.

    Without a budget, only the order of the kernels is planned, after fusion. If the kernels need more than the budget,
    the step is planned anew for that much less and compiled again, see `least_excess`. If they still need more, a
    warning of one line says how much.
    """
    options = Options(compiler="inductor", budget=budget, effort=effort)
    graph = model.graph
    space = graph.spaces[0].name
    allowed = result.budget.allowed[space]
    applied, peaks = _compile(model, result, options, allowed)
    is_free = not _trades_time(result)
    is_least = is_free or result.shortfall is not None
    goal, needed = allowed or 0, result.peak_bytes[space]
    least = Attempt(goal, (applied, result), peaks.beyond_bytes, needed, is_least=is_least, is_free=is_free)
    if allowed is not None:

        def attempt(goal: int) -> Attempt[tuple[Applied, Result]] | None:
            if goal > allowed:
                return None  # the plan itself is shown with its peak, which stays within the budget, too
            other = plan(goal + graph.persistent_bytes()[space])
            if other.shortfall is not None:
                return None
            applied, peaks = _compile(model, other, options, allowed)
            is_free, needed = not _trades_time(other), other.peak_bytes[space]
            return Attempt(goal, (applied, other), peaks.beyond_bytes, needed, is_least=False, is_free=is_free)

        least = least_excess(least, attempt)
    if allowed is not None and not least.fits:
        _warn(graph, least.compiled[1], allowed, least.excess_bytes)
    return least.compiled


def _warn(graph: Graph, result: Result, allowed: int, excess_bytes: int) -> None:
    """Warn in one line that the kernels need more than the budget: why, and which budgets they meet."""
    space = graph.spaces[0].name
    shortfall = result.shortfall
    why = "once fused, they keep more alive than the plan" if shortfall is None else reason(shortfall)
    persistent, before = result.persistent_bytes[space], result.baseline_peak_bytes[space]
    warn_of_excess(graph.name, excess_bytes, f"{why}; {least_reached(allowed + excess_bytes, before, persistent)}")


def _compile(model: TorchModel, result: Result, options: Options, allowed: int | None) -> tuple[Applied, "_StepPeaks"]:
    applied = model.apply(result.plan, verified=True)
    binding = applied.captured.binding
    if not isinstance(binding, TrainingStepBinding):
        raise UsageError("only a training step is compiled here")
    module = applied.captured.graph_module
    if options.budget is not None and (_trades_time(result) or result.moved_ops):
        module = run_rewrites(applied.module, [StoreEarlyValues()])
    settings = binding.state.scalars
    values = settings.live(binding.state.optimizer)
    donated = [place for place, (_, lifetime) in enumerate(applied.captured.inputs) if lifetime is Lifetime.DONATED]
    peaks = _StepPeaks(model.graph, result, allowed, donated)
    run = compile_step(module, settings.entries, values, options, peaks)
    return Applied(applied.captured, applied.module, run), peaks


def _trades_time(result: Result) -> bool:
    """Tell whether a plan runs ops again or copies, so that one for less may need less."""
    return bool(result.reruns or result.transfers.bytes_out)


class _StepPeaks(FusedPeaks):
    """What the budget leaves to the kernels of one step, beside its batch.

    The inputs at the places `donated` end at their last use: gradients of calls before, which the last one updates by.
    """

    def __init__(self, graph: Graph, result: Result, allowed: int | None, donated: Sequence[int]) -> None:
        super().__init__()
        self._donated = donated
        self._left = self._within_budget = None
        if allowed is not None:
            batch = (graph.buffer_spaces == 0) & (graph.lifetimes == Lifetime.INPUT)
            most = allowed if result.shortfall is None else max(allowed, result.peak_bytes[graph.spaces[0].name])
            self._within_budget = allowed - int(graph.sizes[batch].sum())
            self._left = most - int(graph.sizes[batch].sum())

    def left(self, input_names: Sequence[str]) -> int | None:
        """Return what the kernels may need, None where there is no budget."""
        return self._left

    def copied_inputs(self, input_names: Sequence[str]) -> list[str]:
        """Return the inputs that end at their last use."""
        return [input_names[place] for place in self._donated]

    def check(self, input_names: Sequence[str], peak_bytes: int) -> None:
        """Note what the kernels need."""
        if self._within_budget is not None:
            self.note(peak_bytes, self._within_budget)
