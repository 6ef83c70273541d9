"""A planned training step run by Inductor: what the plan runs again runs again there, within the same memory."""

from collections.abc import Callable, Sequence

from lowtide.effort import EffortName
from lowtide.errors import UsageError
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks, warn_of_excess
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.emit.apply import Applied
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.stored_values import StoreEarlyValues
from lowtide.frameworks.torch.training.compile_step import compile_step
from lowtide.graph import Graph, Lifetime
from lowtide.planning.budget import GivenBudget
from lowtide.planning.result import Result

_TRIES = 3


def compiled_step(
    model: TorchModel, result: Result, budget: GivenBudget, effort: EffortName, plan: Callable[[GivenBudget], Result]
) -> tuple[Applied, Result]:
    """Return a step compiled, its kernels fused within the budget and in the order of least memory, and its plan.

    Without a budget, only the order of the kernels is planned, after fusion. If the kernels need more than the budget,
    the step is planned anew for that much less and compiled again, three times in all. If they still need more, a
    warning of one line says how much.
    """
    options = Options(compiler="inductor", budget=budget, effort=effort)
    graph = model.graph
    space = graph.spaces[0].name
    allowed = result.budget.allowed[space]
    applied, peaks = _compile(model, result, options, allowed)
    least = 0 if allowed is None else allowed
    for _ in range(_TRIES - 1):
        least -= peaks.excess_bytes
        other = plan(least + graph.persistent_bytes()[space]) if peaks.excess_bytes and result.reruns else None
        if other is None or other.shortfall is not None:
            break
        applied, peaks = _compile(model, other, options, allowed)
        result = other
    if peaks.excess_bytes:
        warn_of_excess(graph.name, peaks.excess_bytes)
    return applied, result


def _compile(model: TorchModel, result: Result, options: Options, allowed: int | None) -> tuple[Applied, "_StepPeaks"]:
    applied = model.apply(result.plan, verified=True)
    binding = applied.captured.binding
    if not isinstance(binding, TrainingStepBinding):
        raise UsageError("only a training step is compiled here")
    module = applied.captured.graph_module
    if options.budget is not None and (result.reruns or result.moved_ops):
        module = run_rewrites(applied.module, [StoreEarlyValues()])
    settings = binding.state.scalars
    values = settings.live(binding.state.optimizer)
    peaks = _StepPeaks(options, model.graph, result, allowed)
    run = compile_step(module, settings.entries, values, options, peaks)
    return Applied(applied.captured, applied.module, run), peaks


class _StepPeaks(FusedPeaks):
    """What the budget leaves to the kernels of one step, beside its batch."""

    def __init__(self, options: Options, graph: Graph, result: Result, allowed: int | None) -> None:
        super().__init__(options)
        self.excess_bytes = 0
        """What the kernels need beyond that."""
        self._left = None
        if allowed is not None:
            batch = (graph.buffer_spaces == 0) & (graph.lifetimes == Lifetime.INPUT)
            self._left = max(allowed, result.peak_bytes[graph.spaces[0].name]) - int(graph.sizes[batch].sum())

    def left(self, input_names: Sequence[str]) -> int | None:
        """Return what the kernels may need, None where there is no budget."""
        return self._left

    def check(self, input_names: Sequence[str], peak_bytes: int) -> None:
        """Note what the kernels need."""
        self.excess_bytes = 0 if self._left is None else max(0, peak_bytes - self._left)
