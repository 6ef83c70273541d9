"""The result of `fits`: whether a program fits a device, and the cheapest techniques that make it fit."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lowtide.core.documents import fields_of
from lowtide.core.progress import Report, current_report
from lowtide.core.techniques import COST_NOTHING, ROUNDING, TECHNIQUES, Techniques, listed
from lowtide.core.units import exact_size, format_bytes, percent
from lowtide.engine.graph import Graph
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.program import ALL, Program
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.fields import FitsFields
from lowtide.reporting.shortfall import describe_missed, device_verdict
from lowtide.reporting.table import printable


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeviceFit:
    """Memory that a program needs in its first memory space, and the techniques that make it fit."""

    graph: Graph
    device_bytes: int
    result: Result
    """Plan with the cheapest techniques that fit, or with the last ones tried."""
    techniques: Techniques | None
    """Techniques that make it fit: empty if the unmodified program fits, None if nothing does."""
    tried: tuple[Techniques, ...]
    """Sets of techniques in the order tried."""
    source: str | None = None
    """Path or name of the program, for the command to use next."""

    @property
    def space(self) -> str:
        """The memory space that is the device."""
        return self.graph.spaces[0].name

    @property
    def options(self) -> str:
        """Options for `lowtide plan` and `lowtide optimize`; empty if none are needed or none help."""
        if not self.techniques:
            return ""
        return f"--budget {exact_size(self.device_bytes)} --allow {listed(self.techniques)} --costs {self.result.costs}"

    @property
    def next(self) -> str:
        """The command or, for a program without a name, the call that plans with these techniques; or empty."""
        if not self.options:
            return ""
        if self.source is None:
            names = ", ".join(f'"{name}"' for name in TECHNIQUES if name in (self.techniques or ()))
            budget = exact_size(self.device_bytes)
            return f'lowtide.plan(program, budget="{budget}", allow=[{names}], costs="{self.result.costs}")'
        output = f"{Path(self.source).name.partition('.')[0].replace(':', '_')}.plan.json"
        return f"lowtide plan {shlex.quote(self.source)} -o {shlex.quote(output)} {self.options}"

    def __repr__(self) -> str:
        return self.to_text()

    def to_json(self) -> FitsFields:
        """Return the fields of the JSON object."""
        result = self.result
        return fields_of(
            FitsFields,
            result,
            name=self.graph.name,
            fits=self.techniques is not None,
            device_bytes=self.device_bytes,
            persistent_bytes=result.persistent_bytes[self.space] + result.state_on_host_bytes,
            state_on_host_bytes=result.state_on_host_bytes,
            updated_on_host_bytes=result.updated_on_host_bytes,
            baseline_peak_bytes=result.baseline_peak_bytes[self.space],
            peak_bytes=result.peak_bytes[self.space],
            techniques=None if self.techniques is None else [t for t in TECHNIQUES if t in self.techniques],
            tried=[[t for t in TECHNIQUES if t in techniques] for techniques in self.tried],
            shortfall=describe_missed(result),
            options=self.options,
        )

    def to_text(self) -> str:
        """Return the result as text."""
        result, space = self.result, self.space
        before, on_host = result.baseline_peak_bytes[space], result.state_on_host_bytes
        persistent = result.persistent_bytes[space] + on_host
        verdict = device_verdict(self.techniques, self.tried)
        lines = [
            f"{printable(self.graph.name)} on {format_bytes(self.device_bytes)}: {verdict}",
            f"  persistent       {format_bytes(persistent)}   (weights, optimizer state)",
            f"  peak             {format_bytes(before)}   (unmodified program, without persistent)",
            f"  total            {format_bytes(persistent + before)}",
        ]
        if self.techniques:
            after = result.peak_bytes[space]
            lines += [
                f"  planned peak     {format_bytes(after)}, {format_bytes(persistent - on_host + after)} in total",
                *([f"  state on host    {format_bytes(on_host)}{_updated(result)}"] if on_host else []),
                f"  extra time       {percent(result.extra_time)}   ({result.costs} prices)",
                f"  next             {self.next}",
            ]
        elif self.techniques is None:
            lines.append(f"  why not          {describe_missed(result)}")
        return "\n".join(lines)


def fit_device(
    program: Program,
    device_bytes: int,
    settings: PlanSettings,
    progress: Report | None = None,
    plan: Callable[[PlanSettings, Report | None], Result] | None = None,
    source: object = None,
) -> DeviceFit:
    """Find the cheapest techniques with which a program fits a device, persistent buffers included.

    Tries in order: the unmodified program, techniques without extra time, recomputation and, if the settings have a
    host, offload. If that puts state on the host, updates there are tried too, which are equal up to rounding, and
    taken if they cost less. Ignores the budget and the techniques of the settings. `plan` replaces `plan_best_form`,
    whose errors are raised.
    """
    report, find = progress or current_report(), plan or partial(plan_best_form, program)
    ladder: list[Techniques] = [COST_NOTHING, COST_NOTHING | {"recompute"}]
    if settings.host is not None:
        ladder.append(COST_NOTHING | {"recompute", "offload"})

    def tried_with(techniques: Techniques) -> Result:
        report(f"trying {listed(techniques)}")
        return find(replace(settings, budget=device_bytes, techniques=techniques), progress)

    tried: list[Techniques] = [frozenset()]
    result = tried_with(tried[0])
    for techniques in ladder:
        if result.shortfall is None or result.status == "interrupted":
            break
        tried.append(techniques)
        result = tried_with(techniques)
    used = tried[-1]
    missed = result.shortfall is not None
    if (missed or result.state_on_host_bytes) and _updates_on_host(program, used) and result.status != "interrupted":
        tried.append(used | {ROUNDING})
        rounded = tried_with(tried[-1])
        if missed or (rounded.shortfall is None and rounded.extra_time < result.extra_time):
            result, used = rounded, tried[-1]
    return DeviceFit(
        graph=result.graph,
        device_bytes=device_bytes,
        result=result,
        techniques=None if result.shortfall is not None else used,
        tried=tuple(tried),
        source=str(source) if isinstance(source, str | Path) else None,
    )


def _updates_on_host(program: Program, techniques: Techniques) -> bool:
    """Return whether updates of the program can run on its host, if techniques allow copies to it."""
    return "offload" in techniques and program.with_state_on_host(ALL, "host") is not None


def _updated(result: Result) -> str:
    there = result.updated_on_host_bytes
    return f", {format_bytes(there)} of it updated there, equal up to rounding" if there else ""
