"""Who holds the temporaries at the peak of a function, by the user's own lines, and what could be donated."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.index_spaces import OpId
from lowtide.core.units import ByteUnit
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.analysis.holders_at_peak import Holder, holders_at_peak
from lowtide.engine.plan import Plan
from lowtide.frameworks.jax.donation import Donation, suggest_donation
from lowtide.frameworks.jax.fitting.fit import FittedFunction
from lowtide.frameworks.jax.fitting.variants import as_it_stands
from lowtide.frameworks.jax.flat.program import Equation
from lowtide.frameworks.jax.flat.traced import trace
from lowtide.frameworks.jax.reading.callees import bodies_of
from lowtide.frameworks.jax.reading.read import JaxTranslation, read_body
from lowtide.frameworks.jax.reading.sources import line_of

_MOST_SHOWN = 12
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldArray:
    """One array at the peak and the line that made it."""

    holder: Holder
    """Its size, first and last use, and who keeps it alive."""
    type: str
    """Element type and shape: "float32[4096,64]"."""
    source: str | None
    """File, line, function and code of the user's that made it; None where JAX kept none."""
    within: str | None = None
    """The loop in whose turn it is held, by its kernel's name; None for what the function itself holds."""

    def __str__(self) -> str:
        return _lines([self], ByteUnit(self.holder.size_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPeak:
    """A function's temporaries at their peak, under lowtide's model; print it."""

    name: str
    peak_bytes: int
    kernel: str | None
    """The kernel that runs then; None for a function without temporaries."""
    source: str | None
    held: tuple[HeldArray, ...]
    """Largest first; the sizes add up to the peak. What a loop holds in its turn stands in the place of its scratch."""
    donation: Donation | None
    """What the caller could give up; None for what `fit` returned."""

    def __str__(self) -> str:
        groups: dict[tuple[str | None, ...], list[HeldArray]] = {}
        for number, each in enumerate(self.held):
            key = each.source, each.type, each.within, None if each.source else str(number)
            groups.setdefault(key, []).append(each)
        ranked = sorted(groups.values(), key=lambda group: -_bytes_of(group))
        shown, rest = ranked[:_MOST_SHOWN], ranked[_MOST_SHOWN:]
        at = "" if self.kernel is None else f" at {self.kernel}"
        unit = ByteUnit(self.peak_bytes)
        lines = [f"{self.name}: {unit.write(self.peak_bytes)} of temporaries{at} (lowtide's model)"]
        lines += [f"            {self.source}"] if self.source else []
        lines += ["held then:", *(_lines(group, unit) for group in shown)] if shown else []
        if rest:
            total = sum(map(_bytes_of, rest))
            lines.append(f"{unit.write(total):>10}  in {sum(map(len, rest))} more")
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
        source=None if op is None else line_of(_equation(translation, op)),
        held=tuple(sorted(_held(translation, plan, None), key=lambda each: -each.holder.size_bytes)),
        donation=donation,
    )


def _held(translation: JaxTranslation, plan: Plan, within: str | None) -> Iterator[HeldArray]:
    graph = translation.graph
    values = {graph.buffer_names[buffer]: value for value, buffer in translation.buffers.items()}
    numbers = {name: op for op, name in enumerate(graph.op_names)}
    for holder in holders_at_peak(graph, plan):
        if holder.lifetime == "scratch" and holder.first_use is not None:
            op = numbers[holder.first_use]
            inside = _inside(translation, plan, op, holder.size_bytes)
            if inside:
                yield from inside
                continue
            yield HeldArray(holder=holder, type="scratch", source=line_of(_equation(translation, op)), within=within)
            continue
        value = values[holder.name]
        kind: Any = translation.program.types[value]
        source = None if holder.op is None else line_of(_equation(translation, numbers[holder.op]), value)
        text = f"{kind.dtype}[{','.join(map(str, kind.shape))}]"
        yield HeldArray(holder=holder, type=text, source=source, within=within)


def _inside(translation: JaxTranslation, plan: Plan, op: OpId, scratch_bytes: int) -> list[HeldArray]:
    """Return what the largest body of a loop holds at its own peak; none where that is not all of the loop's scratch.

    What the caller counts already, a while loop's state, is left out.
    """
    graph, equation = translation.graph, _equation(translation, op)
    largest: list[HeldArray] = []
    for (_, body), callee in zip(bodies_of(equation.origin), graph.callees[op], strict=False):
        inner = read_body(equation, body, callee)
        inner_plan = plan.callees.get(callee) or Plan.baseline(inner.graph)
        held = list(_held(inner, inner_plan, graph.op_names[op]))
        own = [each for each in held if each.holder.lifetime != "output"]
        for found in (held, own):
            if _bytes_of(found) == scratch_bytes:
                largest = found
                break
    return largest


def _equation(translation: JaxTranslation, op: OpId) -> Equation:
    return translation.program.equations[translation.kernels.kernels[op].root]


def _bytes_of(held: Sequence[HeldArray]) -> int:
    return sum(each.holder.size_bytes for each in held)


def _lines(group: Sequence[HeldArray], unit: ByteUnit) -> str:
    """Return what is held alike, from one line of the user's, in three lines."""
    first = group[0].holder
    names = ", ".join(each.holder.name for each in group[:_MOST_NAMES])
    more = f" and {len(group) - _MOST_NAMES} more" if len(group) > _MOST_NAMES else ""
    count = f"{len(group)} of " if len(group) > 1 else ""
    kept = f", kept by {', '.join(first.kept_alive_by)}" if first.kept_alive_by and len(group) == 1 else ""
    where = "" if group[0].within is None else f", in a turn of {group[0].within}"
    lines = [f"{unit.write(_bytes_of(group)):>10}  {count}{group[0].type}  {names}{more}"]
    if group[0].source is not None:
        lines.append(group[0].source)
    last = group[-1].holder.last_use
    lines.append(f"from {first.first_use or 'start'} to {last or 'end'}{kept}{where}")
    return f"\n{'':12}".join(lines)
