"""A compiled function's memory, from the prediction to the allocator, side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.units import ByteUnit
from lowtide.frameworks.jax.fitting.fit import FittedFunction
from lowtide.frameworks.jax.fitting.variants import as_it_stands
from lowtide.frameworks.jax.flat.traced import trace
from lowtide.frameworks.jax.measure.assigned import AssignedBytes, assigned_bytes
from lowtide.frameworks.jax.measure.compiled import CompiledFigures, compile_flat
from lowtide.frameworks.jax.measure.resident import added_resident_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFunction:
    """What one compiled function takes; print it."""

    name: str
    predicted_bytes: int
    """Peak of temporaries under lowtide's model: of the plan, or of the program in the order it was traced in."""
    figures: CompiledFigures
    """What XLA says."""
    assigned: AssignedBytes | None
    """What its buffer assignment reserves; None where this backend does not give it away."""
    resident_bytes: int | None
    """By how much a call raised the resident memory of a process of its own; None where that was not asked for."""

    def __str__(self) -> str:
        figures = self.figures
        unit = ByteUnit(self.predicted_bytes, figures.temp_bytes, figures.argument_bytes, figures.output_bytes)
        lines = [
            self.name,
            f"  predicted   {unit.write(self.predicted_bytes)} of temporaries (lowtide's model)",
            f"  XLA says    {unit.write(figures.temp_bytes)} of temporaries, "
            f"{unit.write(figures.argument_bytes)} of arguments, {unit.write(figures.output_bytes)} of "
            f"results, {unit.write(figures.alias_bytes)} of them where donated arguments lay",
        ]
        if self.assigned is not None:
            lines.append(
                f"  reserved    {unit.write(self.assigned.temp_bytes)} of temporaries, "
                f"{unit.write(self.assigned.reserved_bytes)} in all (XLA's buffer assignment, "
                f"{self.assigned.allocations} allocations), {unit.write(self.assigned.unused_bytes)} never used"
            )
        if self.resident_bytes is not None:
            expected = figures.temp_bytes + figures.output_bytes
            lines.append(
                f"  allocated   {unit.write(self.resident_bytes)} more resident memory in a call, of "
                f"{unit.write(expected)} temporaries and results"
            )
        return "\n".join(lines)


def measure_compiled(
    function: Callable[..., Any],
    example_args: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    resident: bool = False,
) -> MeasuredFunction:
    """Compile a function as it stands, or take what `fit` returned, and say what it needs beside what was predicted.

    What `fit` returned needs no examples; of a loss it is the value with its gradients. `resident` also calls it once
    on made-up values in a process of its own and says what the allocator took from the system. Raises UsageError where
    the function cannot be traced, UnsupportedError where resident memory cannot be measured here.
    """
    if isinstance(function, FittedFunction):
        found = function.found
        traced, best, predicted = found.traced, found.best, found.predicted_bytes
    else:
        traced = trace(function, example_args, example_kwargs)
        best, predicted = compile_flat("as it stands", as_it_stands(traced).unplanned(), traced, {}), None
    return MeasuredFunction(
        name=f"{traced.name}, {best.name}",
        predicted_bytes=as_it_stands(traced).peak_bytes if predicted is None else predicted,
        figures=best.figures,
        assigned=assigned_bytes(best.executable),
        resident_bytes=added_resident_bytes(best.flat, traced.structs, best.options) if resident else None,
    )
