"""What is said of programs that a runtime orders by itself: its figures beside the plan's, and where they disagree."""

from dataclasses import dataclass

from lowtide.core.units import ByteUnit
from lowtide.engine.planning.measured import Measurement, RuntimePeaks, RuntimeRun
from lowtide.reporting.fields import OutlookFields, RuntimeFields

_TOLERATED = 0.02
"""Predicted and measured figures may differ by so much of the larger one."""
_PROCESS_BYTES = 2**19
"""Resident memory may differ by so much besides: the heap of the process, its page size."""
_COUNTER_BYTES = 2**12
"""A gain of no more than this may be lost among counters and flags that the runtime keeps besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOutlook:
    """What a program that is not planned yet would need, by who runs it: three figures that are seldom the same."""

    file_bytes: int
    """Peak in the program's own order."""
    peaks: RuntimePeaks
    """Of the program and of the best plan found, in the runtime's order."""
    planned_bytes: int
    """Peak of the best plan found, where its order is followed."""

    def to_json(self) -> OutlookFields:
        """Return the fields of the JSON object."""
        return {
            "file_bytes": self.file_bytes,
            "runtime_peaks": self.peaks,
            "planned_bytes": self.planned_bytes,
        }

    def to_text(self) -> str:
        """Return the lines for people."""
        unit = ByteUnit(self.file_bytes)
        return "\n".join(
            [
                "Live bytes at the peak, by who runs it:",
                f"  {unit.write(self.file_bytes):>10}  in the file's order",
                f"  {unit.write(self.peaks.before_bytes):>10}  in {self.peaks.by}",
                f"  {unit.write(self.peaks.before_resident_bytes):>10}  added to resident memory by the stock "
                f"runtime: its order, reuse, pattern and arena, inputs apart{_without(self.peaks)}",
                f"  {unit.write(self.planned_bytes):>10}  in lowtide's session, planned with this effort",
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeReport:
    """Figures of a program in its runtime, and doubts about the plan that they raise."""

    level: str | None
    peaks: RuntimePeaks
    runs: tuple[RuntimeRun, ...]
    unmodeled: tuple[str, ...]
    planned_bytes: int
    baseline_bytes: int
    measured: Measurement | None

    @property
    def doubts(self) -> tuple[str, ...]:
        """Where measured and predicted figures disagree, a sentence each."""
        if self.measured is None:
            return ()
        unit = ByteUnit(self.baseline_bytes, self.measured.before_bytes)
        found = [
            f"{what}: {unit.write(predicted)} predicted, {unit.write(real)} measured"
            for what, predicted, real in (
                ("the file's order", self.baseline_bytes, self.measured.before_bytes),
                ("the plan", self.planned_bytes, self.measured.after_bytes),
            )
            if self._is_doubtful(predicted, real)
        ]
        promised = self.baseline_bytes - self.planned_bytes
        if promised > _COUNTER_BYTES and self.measured.after_bytes >= self.measured.before_bytes:
            found.append("the gain that the plan promises was not measured")
        found += [
            f"{run.by}: resident memory should grow by {unit.write(run.predicted_bytes)} and grows by "
            f"{unit.write(run.growth_bytes)}"
            for run in self.runs
            if run.predicted_bytes is not None
            and run.growth_bytes is not None
            and self._is_doubtful(_nearest_predicted(run, run.growth_bytes), run.growth_bytes, _PROCESS_BYTES)
        ]
        return tuple(found)

    def _is_doubtful(self, predicted: int, real: int, tolerated: int = 0) -> bool:
        """Tell whether two figures disagree; what is not modeled may add to the real one."""
        if self.peaks.unmodeled and real > predicted:
            return False
        return abs(predicted - real) > _TOLERATED * max(predicted, real) + tolerated

    def to_json(self) -> RuntimeFields:
        """Return the fields of the JSON object."""
        return {
            "level": self.level,
            "runtime_peaks": self.peaks,
            "runtime_runs": self.runs,
            "unmodeled": self.unmodeled,
            "doubts": self.doubts,
        }

    def to_text(self) -> str:
        """Return the lines for people."""
        unit = ByteUnit(self.baseline_bytes, self.peaks.before_bytes)
        lines = [
            f"  level            {self.level or 'the file as it stands'}",
            f"  stock order      {unit.write(self.peaks.before_bytes)} before, "
            f"{unit.write(self.peaks.after_bytes)} after   ({self.peaks.by})",
            f"  stock runtime    {unit.write(self.peaks.before_resident_bytes)} before, "
            f"{unit.write(self.peaks.after_resident_bytes)} after   (added to resident memory: its order, reuse, "
            f"pattern and arena{_without(self.peaks)})",
        ]
        lines += [f"  {run.by}: {_run(run, unit)}" for run in self.runs]
        lines += [f"  WARNING          {doubt}" for doubt in self.doubts]
        return "\n".join(lines)


def _without(peaks: RuntimePeaks) -> str:
    return f"; not modeled: {', '.join(peaks.unmodeled)}" if peaks.unmodeled else ""


def _nearest_predicted(run: RuntimeRun, real: int) -> int:
    """Return what lies nearest to a real figure of all that was predicted."""
    said = [each for each in (run.predicted_bytes, run.otherwise_predicted_bytes) if each is not None]
    return min(max(real, min(said)), max(said))


def _run(run: RuntimeRun, unit: ByteUnit) -> str:
    growth = "unknown" if run.growth_bytes is None else unit.write(run.growth_bytes)
    if run.predicted_bytes is not None:
        otherwise = run.otherwise_predicted_bytes
        or_else = "" if otherwise is None else f", or {unit.write(otherwise)} by where the system puts the arena"
        growth += f" ({unit.write(run.predicted_bytes)} predicted{or_else})"
    text = f"resident memory grows by {growth}, {run.seconds * 1e3:.1f} ms a run"
    if run.resident_bytes is not None:
        text += f", the whole process has {unit.write(run.resident_bytes)}"
    if run.arena_bytes is not None:
        text += f", arena {unit.write(run.arena_bytes)}, {run.fallbacks} fallbacks"
    return text
