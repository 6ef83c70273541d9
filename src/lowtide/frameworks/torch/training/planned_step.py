"""A planned training step: captured, planned and verified once, then called like a function."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from lowtide.core.effort import EffortName
from lowtide.core.errors import RewriteError, UsageError, named_type
from lowtide.core.files import path_of
from lowtide.core.progress import Report, Stage, showing
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.budget import GivenBudget
from lowtide.engine.planning.measured import Measurement
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import allowed_techniques
from lowtide.frameworks.torch.capture.state.rehearsal import PythonChangedError
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.capture.step.training_step import (
    GradientHook,
    LossFunction,
    ModelHook,
    Part,
    TrainingStep,
    check_callable,
)
from lowtide.frameworks.torch.emit.apply import Applied
from lowtide.frameworks.torch.measure.compare_peak import compared_on_cuda
from lowtide.frameworks.torch.measure.explain import remember_step
from lowtide.frameworks.torch.measure.measure_plan import ToMeasure
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.planning.missed_budgets import collect_missed_budgets
from lowtide.frameworks.torch.planning.options import DEFAULTS
from lowtide.frameworks.torch.planning.plan_folder import save_plans
from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.reading.captured import Captured, CaptureMismatchError
from lowtide.frameworks.torch.training.measure_accumulation import MeasuredPart, measure_accumulation, predicted_bytes
from lowtide.frameworks.torch.training.step_request import (
    CompilerName,
    StepRequest,
    gradient_hook,
    resolved_budget,
)

_MAX_FORMS = 32
"""Captured forms that are kept: batch shapes, modes, branches, Python values."""
_COMPARED_CALL = 2
"""The call whose GPU peak is compared; the first may create state."""


@dataclass(slots=True, eq=False)
class _Program:
    model: TorchModel
    result: Result
    applied: Applied
    compiled: PlannedModule | None = None
    on_host: int = 0
    calls: int = 0

    @property
    def graph(self) -> Graph:
        return self.model.graph_for(self.result.plan) if self.compiled is None else self.compiled.graph

    @property
    def binding(self) -> TrainingStepBinding:
        return cast("TrainingStepBinding", self.model.captured.binding)

    def to_measure(self) -> ToMeasure:
        if self.compiled is None:
            return self.model.to_measure(self.result.plan)
        alone = self.model.to_measure(Plan.baseline(self.model.graph))
        predicted = self.result.peak_bytes[self.model.graph.spaces[0].name]
        return replace(alone, planned=self.applied, predicted_bytes=predicted, may_round=True)

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor:
        def call() -> torch.Tensor:
            return self.applied(*args, **kwargs)

        is_compared = self.calls + 1 == _COMPARED_CALL and self.applied.planned is not None
        if is_compared and torch.cuda.is_available():
            graph, plan = self.applied.planned or (self.model.graph, self.result.plan)
            predicted = simulate(graph, plan).peak_bytes[graph.spaces[0].name]
            loss = compared_on_cuda(call, (args, kwargs), graph, predicted, stacklevel=5)
        else:
            loss = call()
        self.calls += 1
        return loss


class PlannedStep:
    """A training step in the order of a plan; call it with a batch for the detached loss.

    Use the optimizer and its schedules as usual: `step(...)`, then `scheduler.step()`. Learning rates, momenta, betas
    and weight decays may change. Another batch shape, module mode, setting, or branch on state is captured again, and
    planned again if its graph differs.
    """

    def __init__(self, step: TrainingStep, request: StepRequest) -> None:
        self.step = step
        self._request = request
        self._is_prepared = False
        self._named = frozenset[str]()
        self._on_host = 0
        self._programs: list[_Program] = []

    def __repr__(self) -> str:
        return f"PlannedStep({self.result!r})" if self._programs else super().__repr__()

    @property
    def result(self) -> Result:
        """The plan, with its peak, bound and status."""
        return self._programs[0].result

    @property
    def plan(self) -> Plan:
        """Of the last call's program."""
        return self.result.plan

    @property
    def captured(self) -> Captured:
        """The program that the plan is for: `unmodified`, or in chunks."""
        return self._programs[0].applied.captured

    @property
    def graph(self) -> Graph:
        """The graph that the plan is for, with the host if plans may offload."""
        return self._programs[0].graph

    @property
    def compiled(self) -> PlannedModule | None:
        """The last call's kernels and their plan, if Inductor compiled it."""
        return self._programs[0].compiled

    @property
    def unmodified(self) -> Captured:
        """The program of the last call."""
        return self._programs[0].model.captured

    @property
    def unmodified_graph(self) -> Graph:
        """The graph of `unmodified`, with the host if plans may offload."""
        return self._programs[0].model.graph

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run one step.

        Raises UnsupportedError for a call that cannot be captured, UsageError if another thread runs the step.
        """
        with self.step.one_thread():
            return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor:
        if self.step.part.first:
            self.step.optimizer.zero_grad(set_to_none=True)
        changed: PythonChangedError | None = None
        with self.step.python.one_call():
            for program in list(self._programs):
                try:
                    loss = program.run(args, kwargs)
                except PythonChangedError as error:
                    changed = error
                    continue
                except CaptureMismatchError:
                    continue
                self._put_first(program)
                return loss
            if changed is not None:
                self._warn_of(changed)
            self.prepare(args, kwargs)
            return self._programs[0].run(args, kwargs)

    def to_device(self) -> None:
        """Move parameters and optimizer state to the device until the next call, for example to evaluate the model."""
        binding = self.captured.binding
        if isinstance(binding, TrainingStepBinding):
            with self.step.one_thread():
                binding.bring_to_device()

    def _warn_of(self, changed: PythonChangedError) -> None:
        if not changed.names <= self._named:
            self._named |= changed.names
            message = f"{changed.changes} changed, so the step is captured and planned again; both programs are kept"
            warnings.warn(f"lowtide: {message}", stacklevel=4)

    def prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Capture and plan the step for a call, without running it."""
        with self.step.one_thread(), showing(self._request.progress) as report:
            report(Stage.READ)
            self._prepare(args, kwargs)

    def _prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        model = self._request.read(self.step, args, kwargs)
        fingerprint = model.graph.fingerprint
        known = next((program for program in self._programs if program.model.graph.fingerprint == fingerprint), None)
        if self._request.is_compiled:
            # loads Inductor, which takes seconds
            from lowtide.frameworks.torch.training.compiled_step import compiled_step, result_of_kernels

            applied, planned = compiled_step(model.captured, self._request.options)
            program = _Program(model, result_of_kernels(planned), applied, planned)
        else:
            if known is None:
                result = self._request.find_plan(model, may_plan=self._is_prepared, least_on_host=self._on_host)
            else:
                result = known.result
            on_host = model.planned_form(result.plan).on_host
            self._on_host = max(self._on_host, on_host)
            program = _Program(model, result, model.apply(result.plan, verified=True), on_host=on_host)
        if known is not None and known.binding.rehearsed.signature == program.binding.rehearsed.signature:
            self._programs.remove(known)
        self._put_first(program)

    def prepare_all(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Prepare the first call, one between, and the last; warn of the first missed budget.

        Saved plans must be for these calls.
        """
        last = self.step.accumulate - 1
        parts = sorted({0, min(1, last), last}, reverse=True)  # only the last one updates
        with collect_missed_budgets() as missed:
            for self.step.done in (*parts, *parts):  # calls that keep less on the host would move it back
                known = [each for each in self._programs if each.binding.part == self.step.part]
                if not any(each.on_host >= self._on_host for each in known):
                    self._programs = [each for each in self._programs if each not in known]
                    with self.step.python.one_call():
                        self.prepare(args, kwargs)
        self._programs.sort(key=lambda each: each.binding.part.done, reverse=True)
        self.step.done = 0
        self._is_prepared = True
        for message in missed[:1]:
            warnings.warn(message, stacklevel=3)

    def measure(self) -> Measurement:
        """Run the example batch plainly, captured, and planned; state is restored.

        With `accumulate`, all calls run, and the peak is the whole step's.
        """
        with self.step.one_thread():
            if self.step.accumulate == 1:
                measured = self._programs[0].to_measure().measure()
                return replace(measured, predicted_extra_time=self.result.extra_time)
            done, self.step.done = self.step.done, 0
            try:
                return measure_accumulation(self._measured_parts())
            finally:
                self.step.done = done

    def check(self) -> None:
        """Run the example batch with and without the plan; state is restored.

        Raises RewriteError if results differ by more than allowed rounding, and than two runs without the plan.
        """
        measured = self.measure()
        if measured.verdict == "different":
            raise RewriteError(
                f"outputs equal: {measured.describe()}, so do not train with this plan; report it, or use "
                "allow=['reorder']"
            )

    def peak_of_all_calls(self) -> int:
        """Return the predicted peak of a step's calls in bytes, with parameters and optimizer state."""
        return predicted_bytes(self._measured_parts())

    def _measured_parts(self) -> list[MeasuredPart]:
        calls = self.step.accumulate
        parts = [Part.of(call, calls) for call in range(calls)]
        programs = [next(each for each in self._programs if each.binding.part == part) for part in parts]
        return [MeasuredPart(program.to_measure(), program.result) for program in programs]

    def save_plans(self, folder: str | Path) -> list[Path]:
        """Write the plans of all captured forms to a folder, for `training_step(plan=folder)`; return the paths.

        Raises UsageError if the folder cannot be made, WriteError if a file cannot be written.
        """
        planned = [(each.graph, each.result.plan) for each in self._programs]
        return save_plans(planned, path_of(folder))

    def _put_first(self, program: _Program) -> None:
        others = [other for other in self._programs if other is not program]
        self._programs = [program, *others][: _MAX_FORMS * min(self.step.accumulate, 3)]


def training_step(
    model: nn.Module,
    loss_function: LossFunction | None,
    optimizer: Optimizer,
    example_batch: tuple[Any, ...] | list[Any] | Mapping[str, Any] | torch.Tensor,
    *,
    budget: GivenBudget = DEFAULTS.budget,
    allow: Iterable[str] | None = None,
    effort: EffortName = DEFAULTS.effort,
    compiler: CompilerName = "eager",
    clip_grad_norm: float | None = None,
    clip_grad_value: float | None = None,
    before_update: GradientHook | None = None,
    after_update: ModelHook | None = None,
    accumulate: int = 1,
    grad_scaler: GradScaler | None = None,
    host_bandwidth: str | int | None = None,
    host_capacity: str | int | None = None,
    plan: str | Path | None = None,
    over_budget: bool = False,
    check: bool = False,
    progress: bool | Report = True,
) -> PlannedStep:
    """Return the whole training step, forward, backward and update, as one planned program, without running it.

    `loss_function(model, *batch)` returns the scalar loss; if None, the model does. `budget`, `allow` and `effort` are
    those of `lowtide.minimize`. The budget "fit" is the device's free memory now, with the tensors of the step. By
    default `allow` is "reorder" and "share", with a budget also "recompute". With "offload", plans may copy buffers to
    the host, which holds `host_capacity` and copies at `host_bandwidth` each way ("25 GB/s"; by default 1/64 of the
    speed of the device's memory, the ratio of PCIe to a GPU).

    With the compiler "eager", results are bit-equal to the plain step's. If `allow` names "rounding", they are equal up
    to rounding, chunks can cover more of the step, and updates can run on the host. With "inductor", kernels are fused,
    then ordered for the lowest peak; results are equal up to rounding.

    Gradients are clipped as `torch.nn.utils` does, then passed to `before_update(parameters)`. `after_update(model)`
    runs last, for example an averaged model's `update_parameters`. With `accumulate`, that many calls make a step:
    gradients of the loss divided by that number add up in `.grad`, and the last call updates. A `grad_scaler` scales
    the loss, skips updates and updates its scale; gradients are unscaled before they are clipped.

    With `plan`, the step uses a plan file of `lowtide plan` or `lowtide.save_plan`, or a folder of
    `PlannedStep.save_plans`, instead of planning. Calls unlike the example batch are planned. A plan that misses its
    budget needs `over_budget=True`. With `check`, the example batch runs with and without the plan first.

    A missed budget gives one warning, with the reason and the budgets that are met. The step then runs by the best plan
    found. In a terminal or notebook, planning beyond two seconds shows a bar, and Ctrl-C takes the best plan found.
    `progress` turns it off, or receives its lines.

    Raises FingerprintError for a plan of another step, VerificationError for a wrong plan or a missed budget,
    UnsupportedError for a step that cannot be captured, UsageError for wrong arguments, RewriteError if results differ
    in the check.

    >>> import torch, lowtide.torch
    >>> model = torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear(32, 32), torch.nn.GELU())))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> batch = torch.randn(256, 32), torch.randn(256, 32)
    >>> def loss_function(model, inputs, targets):
    ...     return (model(inputs) - targets).square().mean()
    >>> step = lowtide.torch.training_step(model, loss_function, optimizer, batch, budget="70%")
    >>> loss = step(*batch)
    >>> step.result.peak_bytes["cpu"] <= 0.7 * step.result.baseline_peak_bytes["cpu"]
    True
    """
    request = StepRequest(
        resolved_budget(budget, model, optimizer, example_batch),
        allowed_techniques(allow, budget),
        effort=effort,
        compiler=compiler,
        host_bandwidth=host_bandwidth,
        host_capacity=host_capacity,
        saved_plan=None if plan is None else path_of(plan),
        over_budget=over_budget,
        progress=progress,
    )
    check_callable(before_update=before_update)
    step = TrainingStep(
        model,
        loss_function,
        optimizer,
        before_update=gradient_hook(clip_grad_norm, clip_grad_value, before_update),
        after_update=after_update,
        accumulate=accumulate,
        grad_scaler=grad_scaler,
    )
    step.spells_out_fused = request.is_compiled
    planned = PlannedStep(step, request)
    planned.prepare_all(*_call_of(example_batch))
    if check:
        planned.check()
    remember_step(planned)
    return planned


def _call_of(batch: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(batch, Mapping):
        return (), cast("Mapping[str, Any]", batch)
    if not isinstance(batch, torch.Tensor | tuple | list):
        raise UsageError(f"{named_type(batch)} is no batch; give a tuple, a dict by keyword, or one tensor")
    return (batch,) if isinstance(batch, torch.Tensor) else tuple(cast("tuple[Any, ...]", batch)), {}
