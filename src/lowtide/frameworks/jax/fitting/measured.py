"""Memory figures of a compiled function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.errors import UsageError
from lowtide.core.units import format_bytes
from lowtide.frameworks.jax.fitting.fit import FittedFunction, traced_for
from lowtide.frameworks.jax.fitting.forms import unmodified_form
from lowtide.frameworks.jax.measure.compiled import AssignedBytes, CompiledFigures, assigned_bytes, compile_flat
from lowtide.frameworks.jax.measure.resident import added_resident_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFunction:
    """Memory figures of a compiled function; print it."""

    name: str
    predicted_bytes: int
    """Modeled peak of the plan, or of the unmodified function."""
    figures: CompiledFigures
    assigned: AssignedBytes | None
    """If the backend exposes it."""
    resident_bytes: int | None
    """Added by a call, if requested."""

    def __str__(self) -> str:
        figures = self.figures
        lines = [
            self.name,
            f"  predicted   {format_bytes(self.predicted_bytes)} of temporaries (lowtide's model)",
            f"  XLA reports {format_bytes(figures.temp_bytes)} of temporaries, "
            f"{format_bytes(figures.argument_bytes)} of arguments, {format_bytes(figures.output_bytes)} of "
            f"results, including {format_bytes(figures.alias_bytes)} in donated arguments",
        ]
        if self.assigned is not None:
            lines.append(
                f"  reserved    {format_bytes(self.assigned.temp_bytes)} of temporaries, "
                f"{format_bytes(self.assigned.reserved_bytes)} in total (XLA's buffer assignment, "
                f"{self.assigned.allocations} allocations), {format_bytes(self.assigned.unused_bytes)} never used"
            )
        if self.resident_bytes is not None:
            expected = figures.temp_bytes + figures.output_bytes
            lines.append(
                f"  allocated   {format_bytes(self.resident_bytes)} of resident memory added by a call, for "
                f"{format_bytes(expected)} of temporaries and results"
            )
        return "\n".join(lines)


def measure_compiled(
    function: Callable[..., Any],
    example_args: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    device: str | None = None,
    resident: bool = False,
) -> MeasuredFunction:
    """Return memory figures of a fitted or unmodified function.

    `device` compiles an unmodified function for a GPU that is not there, such as "h100". `resident` also calls the
    function on made-up values in a separate process. Raises UsageError if the function cannot be traced,
    UnsupportedError if resident memory cannot be measured or JAX cannot compile for the device.
    """
    if device is not None and (resident or isinstance(function, FittedFunction)):
        raise UsageError("device= compiles an unmodified function, which cannot be run; leave it or resident= out")
    if isinstance(function, FittedFunction):
        found = function.found
        traced, best, predicted = found.traced, found.best, found.predicted_bytes
    else:
        traced = traced_for(device, function, example_args, example_kwargs)
        best, predicted = compile_flat("unmodified", unmodified_form(traced).unplanned(), traced, {}), None
    return MeasuredFunction(
        name=f"{traced.name}, {best.name}",
        predicted_bytes=unmodified_form(traced).peak_bytes if predicted is None else predicted,
        figures=best.figures,
        assigned=assigned_bytes(best.executable),
        resident_bytes=added_resident_bytes(best.flat, traced.structs, best.options) if resident else None,
    )
