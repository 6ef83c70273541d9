"""A training step under a plan: captured, planned and verified once, called like a function from then on."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from lowtide.core.effort import EffortName
from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.core.files import path_of
from lowtide.core.techniques import NEED_BUDGET, ROUNDING, Techniques
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan
from lowtide.engine.planning.budget import GivenBudget
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.measured import Measurement
from lowtide.engine.planning.plan_best_form import plan_best_form, plan_in_chunks
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings, allowed_techniques
from lowtide.frameworks.torch.capture.capture import capture
from lowtide.frameworks.torch.capture.step.training_step import (
    GradientHook,
    LossFunction,
    ModelHook,
    TrainingStep,
    check_callable,
)
from lowtide.frameworks.torch.emit.apply import Applied
from lowtide.frameworks.torch.emit.transfers.link import check_host, host_for
from lowtide.frameworks.torch.measure.explain import remember_step
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.planning.missed_budgets import collect_missed_budgets, warn_if_missed
from lowtide.frameworks.torch.planning.options import (
    DEFAULTS,
    LEFT_TO_INDUCTOR,
    prices_before_fusion,
)
from lowtide.frameworks.torch.planning.plan_folder import save_plans
from lowtide.frameworks.torch.reading.captured import Captured, CaptureMismatchError
from lowtide.frameworks.torch.training.followed_plan import FollowedPlan

CompilerName = Literal["eager", "inductor"]
_MAX_FORMS = 8
"""Forms of a step that are kept at once: shapes of batches, modes, branches."""


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    model: TorchModel
    result: Result
    applied: Applied


class PlannedStep:
    """A training step that runs in the order of a plan; call it with a batch, it returns the detached loss.

    The optimizer and its schedules are used as ever: `step(...)`, then `scheduler.step()`. Learning rates, momenta,
    betas and weight decays may change from call to call. If a batch has another form, a module another mode, another
    setting changed, or state takes another branch, the call captures anew, and plans anew if the graph is another one.
    """

    def __init__(
        self,
        step: TrainingStep,
        plan: Callable[[TorchModel], Result],
        compiled: Callable[[TorchModel, Result], tuple[Applied, Result, TorchModel]] | None = None,
        host: Callable[[Graph], Host | None] = lambda _: None,
    ) -> None:
        self.step = step
        self._plan = plan
        self._host = host
        self._compile = compiled
        self._programs: list[_Program] = []
        """The one used last comes first."""

    @property
    def result(self) -> Result:
        """What planning found: the plan, its peak, bound and status."""
        return self._programs[0].result

    @property
    def plan(self) -> Plan:
        """The plan of the last call's program."""
        return self.result.plan

    @property
    def captured(self) -> Captured:
        """The graph that the plan is for, with what feeds it: `untouched`, or that in chunks."""
        return self._programs[0].applied.captured

    @property
    def graph(self) -> Graph:
        """The graph of `captured`, as it was read; with "offload" the host is one of its memory spaces."""
        return self._programs[0].model.graph_for(self.plan)

    @property
    def untouched(self) -> Captured:
        """The graph of the last call's program as it was captured."""
        return self._programs[0].model.captured

    @property
    def untouched_graph(self) -> Graph:
        """The graph of `untouched`, as it was read; with "offload" the host is one of its memory spaces."""
        return self._programs[0].model.graph

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run one step; raises UnsupportedError where a call of a new form cannot be captured."""
        if self.step.part.first:
            self.step.optimizer.zero_grad(set_to_none=True)
        for program in list(self._programs):
            try:
                loss = program.applied(*args, **kwargs)
            except CaptureMismatchError:
                continue
            self._put_first(program)
            return loss
        self.prepare(args, kwargs)
        return self._programs[0].applied(*args, **kwargs)

    def prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Capture and plan the step for calls like this one, which is not run."""
        model = TorchModel(_capture(self.step, args, kwargs), for_fusion=self._compile is not None)
        host = self._host(model.graph)
        model = model if host is None else model.with_host(host)
        fingerprint = model.graph.fingerprint
        known = next((program for program in self._programs if program.model.graph.fingerprint == fingerprint), None)
        result = self._plan(model) if known is None else known.result
        if self._compile is None:
            applied = model.apply(result.plan, verified=True)
        else:
            applied, result, model = self._compile(model, result)
        program = _Program(model, result, applied)
        if known is not None:
            self._programs.remove(known)
        self._put_first(program)

    def measure(self) -> Measurement:
        """Run the step on its example batch plainly, captured, and planned; all state is put back at the end.

        Raises UnsupportedError for a step of several calls.
        """
        if self.step.accumulate > 1:
            raise UnsupportedError("a step of several calls cannot be measured; measure one with accumulate=1")
        return self._programs[0].model.measure(self.plan)

    def save_plans(self, folder: str | Path) -> list[Path]:
        """Write the plans of the step's programs to a folder and return their paths, for `training_step(plan=folder)`.

        A step of one call has one program for each form of batch that came. Raises UsageError where the folder cannot
        be made, WriteError where a file cannot be written.
        """
        planned = [(each.model.graph_for(each.result.plan), each.result.plan) for each in self._programs]
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
) -> PlannedStep:
    """Return the whole training step, forward, backward and update, as one planned program; nothing is run yet.

    `loss_function(model, *batch)` returns the scalar loss (None: the model does). `budget`, `allow` and `effort` are
    those of `lowtide.minimize`. If `allow` is left out, it is "reorder" and "share", with a budget "recompute" as well.
    With "offload", a plan may copy buffers to the host, which holds `host_capacity` and copies at `host_bandwidth` each
    way ("25 GB/s"; by default 1/64 of the speed of the device's memory, as PCIe is beside a GPU's).

    With the compiler "eager", results equal the plain step's bit for bit, or to rounding where `allow` names "rounding"
    and that lets more of the step be computed in chunks. With "inductor", kernels are fused, then ordered for least
    memory; results equal those of eager to rounding.

    Gradients are clipped as `torch.nn.utils` does, then handed to `before_update(parameters)`. `after_update(model)`
    runs last, for instance an averaged model's `update_parameters`. With `accumulate`, so many calls make a step: their
    gradients, of the loss divided by that number, wait in `.grad`, and the last call updates. A `grad_scaler` scales
    the loss, skips updates and updates its scale; gradients are unscaled before they are clipped.

    With `plan`, the step follows a plan file instead of planning, one of `lowtide plan` or `lowtide.save_plan`, or what
    a folder holds that `PlannedStep.save_plans` wrote; calls of another form than the example batch are planned. One
    that says itself that it does not fit is taken with `over_budget` alone, as `lowtide.load_plan` does.

    A budget that is not met is one warning, with what stands in the way and which budgets are met; the step then runs
    by the plan of least peak that was found.

    Raises FingerprintError for a plan of another step, VerificationError for one that is wrong or does not fit,
    UnsupportedError for a step that no graph can hold, with what to
    do instead; UsageError for a bad call.

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
    _check_compiler(compiler)
    allowed = allowed_techniques(allow, budget)
    if compiler == "inductor" and plan is not None:
        raise UsageError("a compiled step is planned with its kernels; leave the plan out, or use compiler='eager'")
    if over_budget and plan is None:
        raise UsageError("over_budget takes a plan that does not fit; give that plan, or leave it out")
    check_host(allowed, host_bandwidth, host_capacity)
    check_callable(before_update=before_update)
    hooks = [hook for hook in (_clipping(clip_grad_norm, clip_grad_value), before_update) if hook is not None]

    def prepare(parameters: list[torch.Tensor]) -> None:
        for hook in hooks:
            hook(parameters)

    step = TrainingStep(
        model,
        loss_function,
        optimizer,
        before_update=prepare if hooks else None,
        after_update=after_update,
        accumulate=accumulate,
        grad_scaler=grad_scaler,
    )
    step.spells_out_fused = compiler == "inductor"

    settings = step_settings(budget, allowed, effort, compiler)

    def find(model: TorchModel, within: GivenBudget = budget) -> Result:
        asked = replace(settings, budget=within)
        if compiler == "inductor":
            return find_plan(model.graph, asked)  # whether it fits is known once kernels are fused
        result = plan_best_form(model, asked)
        warn_if_missed(result.graph.name, result.graph, result, asked)
        return result

    def host(graph: Graph) -> Host | None:
        return host_for(graph, host_bandwidth, host_capacity) if "offload" in allowed else None

    def find_in_chunks(model: TorchModel, within: GivenBudget) -> tuple[TorchModel, Result] | None:
        found = plan_in_chunks(model, replace(settings, budget=within))
        return None if found is None else (model, found)

    def compiled(model: TorchModel, result: Result) -> tuple[Applied, Result, TorchModel]:
        # loads Inductor, which takes seconds
        from lowtide.frameworks.torch.training.compiled_step import StepPlans, compiled_step

        plans = StepPlans(lambda less: find(model, less), lambda less: find_in_chunks(model, less))
        return compiled_step(model, result, budget, effort, plans)

    followed = None if plan is None else FollowedPlan(path_of(plan), settings, find, over_budget=over_budget)
    planned = PlannedStep(step, followed or find, compiled if compiler == "inductor" else None, host)
    args, kwargs = _call_of(example_batch)
    with collect_missed_budgets() as missed:
        for step.done in sorted({0, min(1, accumulate - 1), accumulate - 1}):  # the first call, one between, the last
            planned.prepare(args, kwargs)
    step.done = 0
    for message in missed[:1]:
        warnings.warn(message, stacklevel=2)
    if followed is not None:
        followed.is_lenient = True
    remember_step(planned)
    return planned


def step_settings(budget: GivenBudget, allowed: Techniques, effort: EffortName, compiler: CompilerName) -> PlanSettings:
    """Return what a whole step is planned with; Inductor decides by itself what shares storage, and rounds."""
    settings = replace(DEFAULTS, budget=budget, techniques=allowed, effort=effort)
    if compiler == "eager":
        return settings
    by_itself = LEFT_TO_INDUCTOR if allowed & NEED_BUDGET else {ROUNDING}
    return replace(settings, techniques=allowed - by_itself, costs=prices_before_fusion)


def _check_compiler(compiler: str) -> None:
    if compiler not in get_args(CompilerName):
        raise UsageError(f"unknown compiler {compiler!r}; choose one of {', '.join(get_args(CompilerName))}")


def _call_of(batch: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(batch, Mapping):
        return (), cast("Mapping[str, Any]", batch)
    if not isinstance(batch, torch.Tensor | tuple | list):
        raise UsageError(f"a {type(batch).__name__} is no batch; give a tuple, a dict by keyword, or one tensor")
    return (batch,) if isinstance(batch, torch.Tensor) else tuple(cast("tuple[Any, ...]", batch)), {}


def _capture(step: TrainingStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Captured:
    if args and kwargs:
        raise UsageError("a planned step takes its batch by position or by keyword, not both; give one of them")
    try:
        return capture((step, dict(kwargs) if kwargs else args))
    except UnsupportedError as error:
        raise UnsupportedError(
            f'{error}; or plan the model alone, torch.compile(model, backend="lowtide"), and keep your own update'
        ) from error


def _clipping(norm: float | None, value: float | None) -> GradientHook | None:
    if norm is not None and value is not None:
        raise UsageError("gradients can be clipped by norm or by value; give one of clip_grad_norm, clip_grad_value")
    if norm is not None:
        return lambda parameters: nn.utils.clip_grad_norm_(parameters, norm)
    return None if value is None else lambda parameters: nn.utils.clip_grad_value_(parameters, value)
