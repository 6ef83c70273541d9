"""The arguments of `training_step` that decide planning."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from lowtide.core.effort import EffortName
from lowtide.core.errors import FingerprintError, UnsupportedError, UsageError
from lowtide.core.progress import Report
from lowtide.core.techniques import Techniques
from lowtide.engine.planning.budget import GivenBudget, given_budget
from lowtide.engine.planning.plan_file import result_of_file
from lowtide.engine.planning.plan_state import plan_with_state
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.capture.capture import capture
from lowtide.frameworks.torch.capture.step.training_step import GradientHook, TrainingStep
from lowtide.frameworks.torch.emit.transfers import check_host, host_for
from lowtide.frameworks.torch.internals.distributed import is_distributed
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.planning.agreement import least_of_all_ranks, partners, require_agreement
from lowtide.frameworks.torch.planning.free_memory import fit_budget, is_fit, tensors_of
from lowtide.frameworks.torch.planning.missed_budgets import warn_if_missed
from lowtide.frameworks.torch.planning.options import DEFAULTS, Options, package_identity
from lowtide.frameworks.torch.planning.plan_folder import load_plan
from lowtide.frameworks.torch.reading.captured import Captured

CompilerName = Literal["eager", "inductor"]


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A request for a planned step. Raises UsageError for conflicting arguments."""

    budget: GivenBudget
    techniques: Techniques
    _: KW_ONLY
    effort: EffortName = DEFAULTS.effort
    compiler: CompilerName = "eager"
    host_bandwidth: str | int | None = None
    host_capacity: str | int | None = None
    saved_plan: Path | None = None
    over_budget: bool = False
    progress: bool | Report = True

    def __post_init__(self) -> None:
        if self.compiler not in get_args(CompilerName):
            names = ", ".join(get_args(CompilerName))
            raise UsageError(f"unknown compiler {self.compiler!r}; choose one of {names}")
        if self.is_compiled and self.saved_plan is not None and not self.saved_plan.is_dir():
            raise UsageError("compiler='inductor' takes plans as a folder of save_plans, or use compiler='eager'")
        if self.over_budget and self.saved_plan is None:
            raise UsageError("over_budget allows a plan that misses its budget; give that plan, or leave it out")
        check_host(self.techniques, self.host_bandwidth, self.host_capacity)

    @property
    def is_compiled(self) -> bool:
        return self.compiler == "inductor"

    @property
    def settings(self) -> PlanSettings:
        return replace(DEFAULTS, budget=self.budget, techniques=self.techniques, effort=self.effort)

    @property
    def options(self) -> Options:
        return Options(
            budget=self.budget,
            allow=tuple(sorted(self.techniques)),
            host_bandwidth=self.host_bandwidth,
            host_capacity=self.host_capacity,
            effort=self.effort,
            plans=None if self.saved_plan is None else str(self.saved_plan),
        )

    def read(self, step: TrainingStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> TorchModel:
        model = TorchModel(_capture(step, args, kwargs))
        if "offload" not in self.techniques:
            return model
        return model.with_host(host_for(model.graph, self.host_bandwidth, self.host_capacity))

    def find_plan(self, model: TorchModel, *, may_plan: bool, least_on_host: int = 0) -> Result:
        """Return a captured step's saved plan, or a new one if none is requested.

        Raises FingerprintError if ranks whose collectives meet disagree, or if saved plans are for other programs,
        unless the step `may_plan` instead; VerificationError for a saved plan that misses its budget.
        """
        path = self.saved_plan
        together = partners(model.captured.graph_module, None)
        if together is not None:
            require_agreement(model.graph, self._identity(), *together)
        if path is None:
            return self.plan(model, least_on_host)
        try:
            if path.is_dir():
                return load_plan(model, path, self.settings, over_budget=self.over_budget)
            return result_of_file(path, model, self.settings, over_budget=self.over_budget)
        except FingerprintError:
            if not may_plan:
                raise
            return self.plan(model, least_on_host)

    def _identity(self) -> str:
        return f"{package_identity()} {self.compiler} {replace(self.options, plans=None)!r} {self.saved_plan is None}"

    def plan(self, model: TorchModel, least_on_host: int = 0) -> Result:
        """Return a new plan; warn if it misses the budget."""
        result = plan_with_state(model, self.settings, least=least_on_host)
        warn_if_missed(result.graph.name, result.graph, result, self.settings)
        return result


def _capture(step: TrainingStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Captured:
    if args and kwargs:
        raise UsageError("a planned step takes its batch by position or by keyword, not both; give one of them")
    try:
        return capture((step, dict(kwargs) if kwargs else args))
    except UnsupportedError as error:
        raise UnsupportedError(
            f'{error}; or plan the model alone, torch.compile(model, backend="lowtide"), and keep your own update'
        ) from error


def resolved_budget(budget: GivenBudget, model: nn.Module, *others: Any) -> GivenBudget:
    """Return a budget; "fit" becomes the bytes for a step with these tensors, on the fullest rank.

    Raises UsageError, or UnsupportedError if free memory is unknown.
    """
    if not is_fit(budget):
        return given_budget(budget, or_fit=True)
    own = fit_budget(tensors_of(model, *others))
    return least_of_all_ranks(own) if any(map(is_distributed, model.parameters())) else own


def gradient_hook(
    clip_norm: float | None, clip_value: float | None, before_update: GradientHook | None
) -> GradientHook | None:
    hooks: list[GradientHook] = []
    if clip_norm is not None and clip_value is not None:
        raise UsageError("gradients can be clipped by norm or by value; give one of clip_grad_norm, clip_grad_value")
    if clip_norm is not None:
        hooks.append(lambda parameters: nn.utils.clip_grad_norm_(parameters, clip_norm))
    if clip_value is not None:
        hooks.append(lambda parameters: nn.utils.clip_grad_value_(parameters, clip_value))
    if before_update is not None:
        hooks.append(before_update)

    def run_hooks(parameters: list[torch.Tensor]) -> None:
        for hook in hooks:
            hook(parameters)

    return run_hooks if hooks else None
