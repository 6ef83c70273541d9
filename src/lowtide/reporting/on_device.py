"""Peaks of a training step on a device that is not there."""

from dataclasses import dataclass

from lowtide.core.documents import fields_of
from lowtide.core.units import format_bytes, percent
from lowtide.engine.planning.result import Result
from lowtide.reporting.fields import OnDeviceFields
from lowtide.reporting.shortfall import describe_missed, outcome
from lowtide.reporting.table import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDevice:
    """Figures of a program without a plan. Peaks exclude persistent memory."""

    program: str
    device: str
    title: str
    """Name that the driver of the device reports."""
    usable_bytes: int
    """Memory of the device without the CUDA context."""
    persistent_bytes: int
    """Parameters, buffers and optimizer state."""
    eager_peak_bytes: int
    eager_seconds: float
    compiled_peak_bytes: int
    """Peak of Inductor's kernels in its own order."""
    compiled_seconds: float

    def to_json(self) -> OnDeviceFields:
        return fields_of(OnDeviceFields, self)

    def to_text(self, result: Result) -> str:
        space = result.graph.spaces[0].name
        allowed, planned = result.budget.allowed[space], result.peak_bytes[space]
        is_changed = result.reruns or result.form != "unmodified"
        seconds = result.base_cost + result.extra_cost if is_changed else self.compiled_seconds

        def row(name: str, peak: int, time: float) -> str:
            total = self.persistent_bytes + peak
            fits = "fits" if total <= self.usable_bytes else "does not fit"
            return f"  {name:<17}{format_bytes(peak)}, {1e3 * time:.1f} ms   ({format_bytes(total)} in total: {fits})"

        lines = [
            f"{printable(self.program)} on {self.device} ({self.title}, {format_bytes(self.usable_bytes)} usable): "
            f"{outcome(result)}",
            f"  persistent       {format_bytes(self.persistent_bytes)}   (weights, optimizer state; not in the peaks)",
            row("eager", self.eager_peak_bytes, self.eager_seconds),
            row("compiled", self.compiled_peak_bytes, self.compiled_seconds),
            row("planned", planned, seconds),
        ]
        if allowed is not None:
            lines.append(f"  budget           {format_bytes(max(allowed, 0))}   (without persistent)")
        if is_changed:
            cost = percent(result.extra_time, signed=True)
            chunks = "" if result.form == "unmodified" else f"; {result.form}"
            lines.append(
                f"  extra time       {cost} ({result.reruns} recomputed kernels, {result.costs} prices{chunks})"
            )
        else:
            lines.append("  extra time       none: Inductor's kernels run unchanged")
        if result.shortfall is not None:
            lines.append(f"  misses budget    {describe_missed(result)}")
        return "\n".join(lines)
