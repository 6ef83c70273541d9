"""A training step on an absent device as a model to plan."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.core.named_callable import is_callable_name
from lowtide.core.progress import Report, current_report
from lowtide.core.techniques import refuse_ignored
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.costs import Prices, device_named
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.budget import budget_bytes
from lowtide.engine.planning.draft import Keep
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.plan_file import result_with
from lowtide.engine.planning.program import CHUNKED, FormName
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.model import UnrunnableModel
from lowtide.frameworks.torch.absent_device.messages import InChunks, Lower, LoweredPlan, Open, Opened, PricedKernels
from lowtide.frameworks.torch.absent_device.process import DeviceProcess
from lowtide.reporting.on_device import OnDevice

_TRIES = 3
_MIN_GAIN = 0.05
"""Unused share of the budget that is worth another lowering."""
_TECHNIQUES = frozenset({"share", "recompute"})


class DeviceModel(UnrunnableModel):
    """A training step on an absent device: both passes, one op per kernel, in program order."""

    KIND = "a program for an absent device"

    def __init__(self, source: Any, device_name: str) -> None:
        """Lower a program for a device, in a new process.

        `source` is "package.module:callable", "file.py:callable", or (function, module or `TrainingStep`, inputs).
        Raises UsageError for another source, UnsupportedError without a training step in one graph or a C++ compiler.
        """
        device = device_named(device_name)
        if isinstance(source, str):
            if not is_callable_name(source):
                raise UsageError(f"cannot lower {source!r} for {device_name}; give package.module:callable")
            request = Open(device=device, name=source)
        else:
            from lowtide.frameworks.torch.absent_device.forms import pickled_forms

            content, main = pickled_forms(source)
            request = Open(device=device, content=content, main=main)
        self._process = DeviceProcess()
        opened: Opened = self._process.ask(request)
        super().__init__(opened.kernels.graph)
        self._unplanned = opened.unplanned
        self._kernels = opened.kernels
        self._facts = OnDevice(
            program=opened.eager.name,
            device=device_name,
            title=device.name,
            usable_bytes=device.usable_bytes,
            persistent_bytes=_first(self._unplanned, self._unplanned.persistent_bytes()),
            eager_peak_bytes=_baseline_peak(opened.eager),
            eager_seconds=opened.eager_seconds,
            compiled_peak_bytes=opened.unplanned_peak_bytes,
            compiled_seconds=sum(opened.unplanned_seconds),
        )

    @property
    def on_device(self) -> OnDevice:
        return self._facts

    @property
    def as_it_runs(self) -> tuple[Graph, Plan]:
        sharing = PlanSettings(techniques=frozenset({"share"}), scheduler="given", addresses=False)
        return self._unplanned, find_plan(self._unplanned, sharing).plan

    def planned(self, settings: PlanSettings, progress: Report | None = None, keep: Keep | None = None) -> Result:
        """Return the cheapest plan found within the budget, by default the device's usable memory.

        Percentages refer to Inductor's own peak. If that fits, nothing changes. Otherwise kernels are recomputed. If no
        plan fits, or with "rounding", large products are also computed in chunks. Inductor lowers at most three plans
        per form for their exact peaks. Raises UsageError for other techniques.
        """
        because = "plans for an absent device recompute kernels and compute products in chunks only"
        refuse_ignored(settings.techniques, {"offload"}, because, "allow recompute")
        report, allowed = progress or current_report(), self._allowed(settings)
        base, baseline = self._kernels, Plan.baseline(self._kernels.graph)
        compiled = LoweredPlan(peak_bytes=self._facts.compiled_peak_bytes, seconds=self._facts.compiled_seconds)
        best = self._result(base, self._settings_for(base, settings, allowed), allowed, baseline, compiled)
        if not compiled.peak_bytes > allowed >= 0:
            return best
        forms: tuple[FormName, ...] = ("unmodified", *CHUNKED)
        for form in forms:
            kernels = base if form == "unmodified" else self._process.ask(InChunks(form=form, allowed_bytes=allowed))
            if kernels is not None:
                best = self._best_plan(kernels, form, settings, allowed, best, report)
            is_last = form != "unmodified" or "rounding" not in settings.techniques
            if best.shortfall is None and is_last:
                break
        return best

    def _best_plan(
        self, kernels: PricedKernels, form: FormName, settings: PlanSettings, allowed: int, best: Result, report: Report
    ) -> Result:
        settings, target = self._settings_for(kernels, settings, allowed), allowed
        for _ in range(_TRIES):
            report("planning the kernels")
            found = find_plan(kernels.graph, replace(settings, budget=target), progress=report)
            report("lowering the plan")
            plan = found.plan.without_claims()
            lowered: LoweredPlan = self._process.ask(Lower(plan=plan, allowed_bytes=allowed, form=form))
            result = self._result(kernels, settings, allowed, plan, lowered, found.seconds, form)
            best = min(best, result, key=_rank)
            left, missed = allowed - lowered.peak_bytes, found.shortfall
            # If a plan misses its target, but not the budget once lowered, its own peak leaves room.
            target = left + (target if missed is None else missed.reached_bytes)
            is_close = 0 <= left < _MIN_GAIN * allowed
            if is_close or (missed is not None and left < 0) or not 0 < target < self._facts.compiled_peak_bytes:
                break
        return best

    def apply(self, plan: Plan) -> NoReturn:
        raise UnsupportedError(
            'this program runs on its device only; compile it there with backend="lowtide" and the same budget'
        )

    def save(self, plan: Plan, path: Path) -> NoReturn:
        self.apply(plan)

    def _allowed(self, settings: PlanSettings) -> int:
        facts = self._facts
        persistent = 0 if settings.transient else facts.persistent_bytes
        budget = facts.usable_bytes if settings.budget is None else settings.budget
        return budget_bytes(budget, facts.compiled_peak_bytes, persistent)

    def _settings_for(self, kernels: PricedKernels, settings: PlanSettings, allowed: int) -> PlanSettings:
        named = settings.prices(kernels.graph)
        prices = Prices(profile=self._facts.device, seconds=np.array(kernels.seconds), device=self._facts.title)
        return replace(
            settings,
            budget=max(0, allowed),
            transient=True,
            techniques=_TECHNIQUES,
            scheduler=None,
            host=None,
            addresses=False,
            costs=prices if named.profile == "given" else named,
        )

    def _result(
        self,
        kernels: PricedKernels,
        settings: PlanSettings,
        allowed: int,
        plan: Plan,
        lowered: LoweredPlan,
        seconds: float = 0.0,
        form: FormName = "unmodified",
    ) -> Result:
        """Return a result; with prices of another device, its times are those of the kernel graph."""
        space, facts = self._space, self._facts
        missed = Shortfall(space=space, allowed_bytes=allowed, reached_bytes=lowered.peak_bytes, cause="not found")
        if allowed < 0:
            needed = facts.persistent_bytes
            missed = replace(missed, cause="persistent buffers", needed_bytes=needed, is_impossible=True)
        shortfall = missed if lowered.peak_bytes > allowed else None
        found = result_with(kernels.graph, plan, settings, "given", shortfall, seconds=seconds)
        if found.costs == facts.device:
            added = lowered.seconds - facts.compiled_seconds
            found = replace(found, base_cost=facts.compiled_seconds, extra_cost=added)
        return replace(
            found,
            form=form,
            to_rounding=form != "unmodified",
            baseline_peak_bytes={space: facts.compiled_peak_bytes},
            peak_bytes={space: lowered.peak_bytes},
            persistent_bytes={space: facts.persistent_bytes},
            lower_bound_bytes={space: 0},
        )

    @property
    def _space(self) -> str:
        return self.graph.spaces[0].name


def _rank(result: Result) -> tuple[int, float]:
    missed = 0 if result.shortfall is None else result.shortfall.missed_bytes
    return missed, result.extra_time


def _baseline_peak(graph: Graph) -> int:
    return _first(graph, simulate(graph, Plan.baseline(graph)).peak_bytes)


def _first(graph: Graph, figures: Any) -> int:
    return int(figures[graph.spaces[0].name])
