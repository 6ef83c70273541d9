"""Figures of programs that a runtime reorders."""

from dataclasses import dataclass

from lowtide.core.documents import fields_of
from lowtide.core.units import format_bytes
from lowtide.engine.planning.measured import Measurement, RuntimePeaks, RuntimeRun
from lowtide.reporting.fields import OutlookFields, RuntimeFields

_TOLERATED = 0.02
"""Tolerated error of predictions, relative to the larger figure."""
_PROCESS_BYTES = 2**19
"""For the heap and the page size."""
_COUNTER_BYTES = 2**12
"""Smaller predicted gains need not be measured: the runtime has counters of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOutlook:
    """Peak of an unplanned program in file order, in the stock runtime and in lowtide's session."""

    file_bytes: int
    """Peak in program order."""
    peaks: RuntimePeaks
    """Peaks of the program and of the best plan found, in the runtime's order."""
    planned_bytes: int
    """Peak of the best plan found, if its order is followed."""

    def to_json(self) -> OutlookFields:
        return fields_of(OutlookFields, self, runtime_peaks=self.peaks)

    def to_text(self) -> str:
        return "\n".join(
            [
                "Peak memory by runtime:",
                f"  {format_bytes(self.file_bytes):>10}  in file order",
                f"  {format_bytes(self.peaks.before_bytes):>10}  in {self.peaks.by}",
                f"  {format_bytes(self.peaks.before_resident_bytes):>10}  added to resident memory by the stock "
                f"runtime (order, reuse, pattern, arena; without inputs){_without(self.peaks)}",
                f"  {format_bytes(self.planned_bytes):>10}  in lowtide's session, with the plan for this effort",
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeReport:
    """Predicted and measured figures of a program in its runtime."""

    level: str | None
    peaks: RuntimePeaks
    runs: tuple[RuntimeRun, ...]
    unmodeled: tuple[str, ...]
    planned_bytes: int
    baseline_bytes: int
    measured: Measurement | None
    session_bytes: int | None = None
    """Arena of lowtide's session, without inputs; None without addresses."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """One sentence per measured figure that contradicts its prediction."""
        if self.measured is None:
            return ()
        found = [
            f"{name}: {format_bytes(predicted)} predicted, {format_bytes(real)} measured"
            for name, predicted, real in (
                ("file order", self.baseline_bytes, self.measured.before_bytes),
                ("planned order", self.planned_bytes, self.measured.after_bytes),
            )
            if self._is_doubtful(predicted, real)
        ]
        promised = self.baseline_bytes - self.planned_bytes
        if promised > _COUNTER_BYTES and self.measured.after_bytes >= self.measured.before_bytes:
            found.append("the predicted gain was not measured")
        found += [
            f"{run.by}: resident memory grows by {format_bytes(run.growth_bytes)}, "
            f"{format_bytes(run.predicted_bytes)} predicted"
            for run in self.runs
            if run.predicted_bytes is not None
            and run.growth_bytes is not None
            and self._is_doubtful(_nearest_predicted(run, run.growth_bytes), run.growth_bytes, _PROCESS_BYTES)
        ]
        return tuple(found)

    def _is_doubtful(self, predicted: int, real: int, tolerated: int = 0) -> bool:
        """Return whether two figures disagree; unmodeled memory may add to the measured one."""
        if self.peaks.unmodeled and real > predicted:
            return False
        return abs(predicted - real) > _TOLERATED * max(predicted, real) + tolerated

    @property
    def _session_helps(self) -> bool:
        if self.runs or self.session_bytes is None or self.planned_bytes < self.baseline_bytes:
            return False
        return self.session_bytes < (1 - _TOLERATED) * self.peaks.after_resident_bytes

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
        """Return the figures as text."""
        lines = [
            f"  level            {self.level or 'unmodified file'}",
            f"  stock order      {format_bytes(self.peaks.before_bytes)} before, "
            f"{format_bytes(self.peaks.after_bytes)} after   ({self.peaks.by})",
            f"  stock runtime    {format_bytes(self.peaks.before_resident_bytes)} before, "
            f"{format_bytes(self.peaks.after_resident_bytes)} after   (resident memory: order, reuse, "
            f"pattern, arena{_without(self.peaks)})",
        ]
        if self._session_helps:
            lines.append(
                f"  lowtide.onnx.Session  {format_bytes(self.session_bytes or 0)}   (the same, with values at planned "
                "addresses: use it instead of InferenceSession)"
            )
        lines += [f"  {run.by}: {_run(run)}" for run in self.runs]
        lines += [f"  WARNING          {doubt}" for doubt in self.doubts]
        return "\n".join(lines)


def _without(peaks: RuntimePeaks) -> str:
    return f"; not modeled: {', '.join(peaks.unmodeled)}" if peaks.unmodeled else ""


def _nearest_predicted(run: RuntimeRun, real: int) -> int:
    predictions = [each for each in (run.predicted_bytes, run.otherwise_predicted_bytes) if each is not None]
    return min(max(real, min(predictions)), max(predictions))


def _run(run: RuntimeRun) -> str:
    growth = "unknown" if run.growth_bytes is None else format_bytes(run.growth_bytes)
    if run.predicted_bytes is not None:
        alternative = run.otherwise_predicted_bytes
        or_else = "" if alternative is None else f", or {format_bytes(alternative)} depending on the arena's address"
        growth += f" ({format_bytes(run.predicted_bytes)} predicted{or_else})"
    text = f"resident memory grows by {growth}, {run.seconds * 1e3:.1f} ms per run"
    if run.resident_bytes is not None:
        text += f", process total {format_bytes(run.resident_bytes)}"
    if run.arena_bytes is not None:
        text += f", arena {format_bytes(run.arena_bytes)}, {run.fallbacks} fallbacks"
    return text
