"""Who holds the temporaries at the peak of a function, by the user's own lines, and what could be donated."""

import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.analysis.footprint import simulate
from lowtide.analysis.holders_at_peak import Holder, holders_at_peak
from lowtide.frameworks.jax.donation import Donation, suggest_donation
from lowtide.frameworks.jax.fitting.fit import FittedFunction
from lowtide.frameworks.jax.fitting.variants import as_it_stands
from lowtide.frameworks.jax.flat.traced import trace
from lowtide.frameworks.jax.internals import user_frame
from lowtide.frameworks.jax.reading.read import JaxTranslation
from lowtide.plan import Plan
from lowtide.units import format_bytes

_MOST_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldArray:
    """One array at the peak and the line that made it."""

    holder: Holder
    """Its size, first and last use, and who keeps it alive."""
    type: str
    """Element type and shape: "float32[4096,64]"."""
    source: str | None
    """File, line, function and code of the user's that the kernel was traced in; None where JAX kept none."""

    def __str__(self) -> str:
        holder = self.holder
        kept = f", kept by {', '.join(holder.kept_alive_by)}" if holder.kept_alive_by else ""
        lines = [f"{format_bytes(holder.size_bytes):>10}  {self.type}  {holder.name}"]
        if self.source is not None:
            lines.append(self.source)
        lines.append(f"from {holder.first_use or 'start'} to {holder.last_use or 'end'}{kept}")
        return f"\n{'':12}".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPeak:
    """A function's temporaries at their peak, under lowtide's model; print it."""

    name: str
    peak_bytes: int
    kernel: str | None
    """The kernel that runs then; None for a function without temporaries."""
    source: str | None
    held: tuple[HeldArray, ...]
    """Largest first; the sizes add up to the peak."""
    donation: Donation | None
    """What the caller could give up; None for what `fit` returned."""

    def __str__(self) -> str:
        shown, rest = self.held[:_MOST_SHOWN], self.held[_MOST_SHOWN:]
        lines = [f"{self.name}: {format_bytes(self.peak_bytes)} of temporaries at {self.kernel} (lowtide's model)"]
        lines += [f"            {self.source}"] if self.source else []
        lines += ["held then:", *map(str, shown)]
        if rest:
            total = sum(each.holder.size_bytes for each in rest)
            lines.append(f"{format_bytes(total):>10}  in {len(rest)} more")
        if self.donation is not None:
            lines.append(str(self.donation))
        return "\n".join(lines)


def explain(
    function: Callable[..., Any], example_args: Sequence[Any] = (), example_kwargs: Mapping[str, Any] | None = None
) -> FunctionPeak:
    """Name what is held at the peak of a function as it stands, or under the plan of what `fit` returned.

    Nothing is compiled: the peak is lowtide's, of the kernels that XLA is taken to make. Raises UsageError where the
    function cannot be traced.
    """
    if isinstance(function, FittedFunction):
        found = function.found
        translation = found.variant.translation
        plan = found.result.plan if found.result is not None else Plan.baseline(translation.graph)
        return _peak(f"{found.traced.name}, {found.best.name}", translation, plan, None)
    traced = trace(function, example_args, example_kwargs)
    translation = as_it_stands(traced).translation
    donation = suggest_donation(function, example_args, example_kwargs)
    return _peak(traced.name, translation, Plan.baseline(translation.graph), donation)


def _peak(name: str, translation: JaxTranslation, plan: Plan, donation: Donation | None) -> FunctionPeak:
    graph = translation.graph
    space = graph.spaces[0].name
    footprint = simulate(graph, plan)
    step = footprint.peak_steps[space]
    op = None if step < 0 else int(plan.targets[step])
    return FunctionPeak(
        name=name,
        peak_bytes=footprint.peak_bytes[space],
        kernel=None if op is None else graph.op_names[op],
        source=None if op is None else _source_of(translation, op),
        held=tuple(_held(translation, holder) for holder in holders_at_peak(graph, plan)),
        donation=donation,
    )


def _held(translation: JaxTranslation, holder: Holder) -> HeldArray:
    graph = translation.graph
    maker = holder.op if holder.lifetime != "scratch" else holder.first_use
    op = None if maker is None else graph.op_names.index(maker)
    values = {graph.buffer_names[buffer]: value for value, buffer in translation.buffers.items()}
    value = values.get(holder.name)
    kind: Any = None if value is None else translation.program.types[value]
    text = "scratch" if kind is None else f"{kind.dtype}[{','.join(map(str, kind.shape))}]"
    return HeldArray(holder=holder, type=text, source=None if op is None else _source_of(translation, op))


def _source_of(translation: JaxTranslation, op: int) -> str | None:
    equation = translation.program.equations[translation.kernels.kernels[op].root]
    frame = user_frame(equation.origin)
    if frame is None:
        return None
    file, line, function = frame
    code = linecache.getline(file, line).strip()
    return f"{file}:{line} in {function}" + (f"  {code}" if code else "")
