"""What is said of programs that a runtime orders by itself: its figures beside the plan's, and where they disagree."""

from dataclasses import dataclass

from lowtide.frameworks.model import Measurement, RuntimePeaks, RuntimeRun
from lowtide.report.fields import RuntimeFields
from lowtide.report.printable import printable
from lowtide.units import format_bytes

_TOLERATED = 0.02
"""Predicted and measured peaks may differ by so much of the larger one."""


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
        found = [
            f"{what}: {format_bytes(predicted)} predicted, {format_bytes(real)} measured"
            for what, predicted, real in (
                ("the file's order", self.baseline_bytes, self.measured.before_bytes),
                ("the plan", self.planned_bytes, self.measured.after_bytes),
            )
            if abs(predicted - real) > _TOLERATED * max(predicted, real)
        ]
        if self.planned_bytes < self.baseline_bytes and self.measured.after_bytes >= self.measured.before_bytes:
            found.append("the gain that the plan promises was not measured")
        return tuple(found)

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
        lines = [
            f"  level            {self.level or 'the file as it stands'}",
            f"  stock order      {format_bytes(self.peaks.before_bytes)} before, "
            f"{format_bytes(self.peaks.after_bytes)} after   ({self.peaks.by})",
        ]
        lines += [f"  {run.by}: {_run(run)}" for run in self.runs]
        if self.unmodeled:
            first, *others = self.unmodeled
            more = f" and {len(others)} more" if others else ""
            lines.append(f"  not modeled      {printable(first)}{more}; see lowtide inspect")
        lines += [f"  WARNING          {doubt}" for doubt in self.doubts]
        return "\n".join(lines)


def _run(run: RuntimeRun) -> str:
    growth = "unknown" if run.growth_bytes is None else format_bytes(run.growth_bytes)
    text = f"resident memory grows by {growth}, {run.seconds * 1e3:.1f} ms a run"
    if run.arena_bytes is not None:
        text += f", arena {format_bytes(run.arena_bytes)}, {run.fallbacks} fallbacks"
    return text
