"""Programs that a runtime optimizes and orders by itself: what runs is planned, and what it takes is said."""

from pathlib import Path

import click

from lowtide.cli.progress import Progress
from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.core.units import format_bytes
from lowtide.engine.analysis import simulate
from lowtide.engine.planning.result import Result
from lowtide.frameworks.model import Measurement, Model, RunByRuntime
from lowtide.reporting.inspection import Inspection
from lowtide.reporting.runtime import RuntimeOutlook, RuntimeReport


def as_it_runs(opened: Model, level: str | None, output: Path | None, progress: Progress) -> Model:
    """Return the program at a level of its runtime's; by default only where a program is written.

    A program that the runtime does not load stays as it is, with a line on stderr, unless a level was asked for.
    """
    if not isinstance(opened, RunByRuntime):
        return opened
    written = output is not None and output.suffix in opened.file_endings
    if level is not None and not written:
        raise UsageError("a level changes the program that is planned; write it with -o OUTPUT, of the kind of MODEL")
    if not written:
        return opened
    progress("optimizing by the runtime")
    try:
        return opened.optimized(level)
    except UnsupportedError as error:
        if level is not None:
            raise
        click.echo(f"lowtide: planned as the file stands, without optimization by the runtime: {error}", err=True)
        return opened


def check_order(opened: Model, result: Result, output: Path | None, target: str) -> None:
    """Raise UsageError for a program to be written that its runtime's own order makes worse than it was."""
    if not isinstance(opened, RunByRuntime) or output is None or target == "lowtide-session":
        return
    if output.suffix not in opened.file_endings:
        return
    peaks = opened.runtime_peaks(result.plan)
    if peaks.after_bytes > peaks.before_bytes:
        raise UsageError(
            f"{output} was not written: {peaks.by} would need {format_bytes(peaks.after_bytes)} for it, and "
            f"{format_bytes(peaks.before_bytes)} for the file as it stands; only lowtide's session follows the plan, "
            "so add --for lowtide-session, or run the original"
        )


def runtime_outlook(opened: Model, inspection: Inspection) -> RuntimeOutlook | None:
    """Return what a program needs by who runs it; None without a runtime that has an order of its own."""
    if not isinstance(opened, RunByRuntime):
        return None
    return RuntimeOutlook(
        file_bytes=sum(inspection.peak_bytes.values()),
        peaks=opened.runtime_peaks(inspection.best),
        planned_bytes=sum(simulate(opened.graph, inspection.best).peak_bytes.values()),
    )


def runtime_report(
    opened: Model, result: Result, measured: Measurement | None, progress: Progress
) -> RuntimeReport | None:
    """Return what the runtime makes of a plan, with runs where one measures; None without such a runtime."""
    if not isinstance(opened, RunByRuntime):
        return None
    peaks = opened.runtime_peaks(result.plan)
    runs = ()
    if measured is not None:
        progress("measuring: stock runtime and lowtide's session, each in a process")
        runs = tuple(opened.runtime_runs(result.plan))
    return RuntimeReport(
        level=opened.level,
        peaks=peaks,
        runs=runs,
        unmodeled=tuple(opened.graph.unmodeled),
        planned_bytes=sum(result.peak_bytes.values()),
        baseline_bytes=sum(result.baseline_peak_bytes.values()),
        measured=measured,
    )
