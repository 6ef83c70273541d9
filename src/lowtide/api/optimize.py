"""The main job: plan a program, apply the plan, save the result and measure it."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lowtide.api.opening import PLAN_FILES, save_applied
from lowtide.api.outputs import save
from lowtide.core.errors import UnsupportedError, UsageError, WriteError
from lowtide.core.progress import Report, current_report
from lowtide.core.units import format_bytes
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan import Plan, write_plan_file
from lowtide.engine.planning.draft import Keep
from lowtide.engine.planning.measured import CompiledMemory, Measurement
from lowtide.engine.planning.next_technique import NextTechnique, next_technique
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.model import Model
from lowtide.reporting.fields import OptimizeFields, RuntimeFields
from lowtide.reporting.measured import measured_to_json
from lowtide.reporting.planning import compiled_to_text, result_to_json, result_to_text
from lowtide.reporting.runtime import RuntimeOutlook, RuntimeReport

Target = Literal["any-runtime", "lowtide-session"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """Parameters of `optimize_model`."""

    settings: PlanSettings = field(default_factory=PlanSettings)
    output: Path | None = None
    """Path of the planned program, or of the plan (.plan.json[.gz])."""
    measure: bool = False
    level: str | None = None
    """Level of the runtime's optimizations to plan on top of."""
    for_this_machine: bool = False
    """Whether to plan on top of all runtime optimizations, even for one kind of processor."""
    target: Target = "any-runtime"
    annotate: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class Optimized:
    """The result of `optimize_model`: a verified plan, and all measurements."""

    model: Model
    """The planned program, with its runtime's optimizations."""
    result: Result
    measured: Measurement | None
    compiled: Sequence[CompiledMemory]
    """Memory reported by the framework's compiler; empty without measuring or compiler."""
    runtime: RuntimeReport | None
    """Peaks in the runtime's own order; None if programs run in plan order."""
    kept: str | None
    """Why the program was written without the plan; None if it follows the plan."""
    offer: NextTechnique | None
    """A plan with recomputation that lowers the peak further, or fits a missed budget."""

    @property
    def is_sound(self) -> bool:
        """Whether measured results equal the unmodified program's, and confirm the prediction."""
        measured, runtime = self.measured, self.runtime
        are_results_right = measured is None or measured.verdict != "different"
        return are_results_right and (runtime is None or not runtime.doubts)

    def to_json(self) -> OptimizeFields:
        """Return the fields of the JSON object."""
        runtime = RuntimeFields() if self.runtime is None else self.runtime.to_json()
        fields: OptimizeFields = {
            **result_to_json(self.result, self.offer),
            **measured_to_json(self.measured),
            **runtime,
            "left_alone": self.kept,
        }
        if self.compiled:
            fields["compiled"] = self.compiled
        return fields

    def to_text(self) -> str:
        """Return the page for people."""
        lines = [result_to_text(self.result, self.measured, self.offer)]
        lines += map(compiled_to_text, self.compiled)
        if self.kept is not None:
            lines.append(f"  not applied      {self.kept}")
        if self.runtime is not None:
            lines.append(self.runtime.to_text())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.to_text()


def optimize_model(
    model: Model, job: Job, progress: Report | None = None, warn: Callable[[str], None] = lambda _: None
) -> Optimized:
    """Plan a program, write the planned program, and measure both, as the job asks.

    `warn` receives lines on the runtime's optimization. Raises UsageError for an unusable level or output,
    UnsupportedError if it cannot be measured, WriteError, and the errors of planning and applying.
    """
    report = progress or current_report()
    if job.measure:
        model.check_measurable()
    model = _as_it_runs(model, job, report, warn)
    settings, output = job.settings, job.output
    with plan_kept_beside(output) as keep:
        result = model.planned(settings, progress, keep)
        check_order(model, result, job)
        allowed = result.budget.allowed[result.graph.spaces[0].name]
        measured = None
        if job.measure:
            report("measuring: running the program before and after")
            measured = model.measure(result.plan)
        kept = model.reason_to_keep(result.plan, allowed, measured)
        if output is not None:
            report(f"writing {output}")
            if kept is not None and output.name.endswith(model.file_endings):
                save(output, model.save_unmodified)
            else:
                save(
                    output,
                    lambda path: save_applied(model, result.plan, path, annotate=job.annotate),
                    lambda folder: _rescued(result, folder),
                )
    offer = None if model.on_device else next_technique(result.graph, result, settings, report)
    return Optimized(
        model=model,
        result=result,
        measured=measured,
        compiled=model.compiled_memory(result.plan) if job.measure else (),
        runtime=runtime_report(model, result, measured, report),
        kept=kept,
        offer=offer,
    )


@contextmanager
def plan_kept_beside(output: Path | None) -> Generator[Keep]:
    """Yield a function that writes the best plan found to `NAME.so-far.plan.json` next to an output.

    The file is removed once the result is written, and stays after an error or interrupt. If it cannot be written, the
    search continues.
    """
    path = None
    if output is not None:
        ending = next((ending for ending in reversed(PLAN_FILES) if output.name.endswith(ending)), "")
        path = output.with_name(f"{output.name.removesuffix(ending)}.so-far.plan.json")

    def keep(graph: Graph, plan: Plan) -> None:
        if path is not None:
            with suppress(WriteError):
                write_plan_file(plan, path, graph)

    yield keep
    if path is not None:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def runtime_report(model: Model, result: Result, measured: Measurement | None, report: Report) -> RuntimeReport | None:
    """Return the runtime's peaks for a plan, with real runs if `measured`; None without such a runtime."""
    peaks = model.runtime_peaks(result.plan)
    if peaks is None:
        return None
    runs = ()
    if measured is not None:
        report("measuring: stock runtime and lowtide's session, each in a process")
        runs = tuple(model.runtime_runs(result.plan))
    return RuntimeReport(
        level=model.level,
        peaks=peaks,
        runs=runs,
        unmodeled=tuple(model.graph.unmodeled),
        planned_bytes=sum(result.peak_bytes.values()),
        baseline_bytes=sum(result.baseline_peak_bytes.values()),
        measured=measured,
        session_bytes=_session_bytes(result),
    )


def _session_bytes(result: Result) -> int | None:
    """Return a plan's arena without inputs, which callers hold; None without addresses."""
    graph, arena = result.graph, sum(result.arena_bytes.values())
    inputs = int(graph.sizes[graph.lifetimes == Lifetime.INPUT].sum())
    return arena - inputs if arena else None


def runtime_outlook(model: Model, best: Plan) -> RuntimeOutlook | None:
    """Return a program's peaks under each runtime before planning; None without such a runtime."""
    peaks = model.runtime_peaks(best)
    if peaks is None:
        return None
    graph = model.graph
    return RuntimeOutlook(
        file_bytes=sum(simulate(graph, Plan.baseline(graph)).peak_bytes.values()),
        peaks=peaks,
        planned_bytes=sum(simulate(graph, best).peak_bytes.values()),
    )


def _as_it_runs(model: Model, job: Job, report: Report, warn: Callable[[str], None]) -> Model:
    """Return the program with its runtime's optimizations if it is written."""
    is_written = job.output is not None and job.output.name.endswith(model.file_endings)
    asked = "--for-this-machine" if job.for_this_machine else None if job.level is None else "--level"
    if not model.is_reordered_by_runtime:
        if asked is not None:
            raise UsageError(f"{model.graph.name!r} has no levels to plan on top of; leave out {asked}")
        return model
    if not is_written:
        if asked is not None:
            raise UsageError(f"{asked} changes the planned program; write it with -o OUTPUT, of the kind of MODEL")
        return model
    report("optimizing by the runtime")
    try:
        found = model.optimized(job.level, for_this_machine=job.for_this_machine)
    except UnsupportedError as error:
        if asked is not None:
            raise
        warn(f"planned as given, without optimization by the runtime: {error}")
        return model
    if found.is_faster_here:
        warn(f"level {found.level} runs anywhere; --for-this-machine is faster here, in the layout of this processor")
    return found


def check_order(model: Model, result: Result, job: Job) -> None:
    """Raise UsageError if the runtime's own order would need more for the written program than for the given one."""
    output = job.output
    if output is None or job.target == "lowtide-session" or not output.name.endswith(model.file_endings):
        return
    peaks = model.runtime_peaks(result.plan)
    if peaks is not None and peaks.after_bytes > peaks.before_bytes:
        raise UsageError(
            f"{output} was not written: {peaks.by} would need {format_bytes(peaks.after_bytes)} for it, and "
            f"{format_bytes(peaks.before_bytes)} for the unmodified file; only lowtide's session follows the plan, so "
            "add --for lowtide-session, or run the original"
        )


def _rescued(result: Result, folder: Path) -> Path:
    path = folder / "rescued.plan.json"
    write_plan_file(result.plan, path, result.graph)
    return path
