"""Temporaries alive at the peak, and arguments to donate."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.index_spaces import OpId
from lowtide.core.units import format_bytes
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.analysis.holders_at_peak import Holder, holders_at_peak
from lowtide.engine.plan import Plan
from lowtide.frameworks.jax.fitting.fit import FittedFunction
from lowtide.frameworks.jax.fitting.forms import unmodified_form
from lowtide.frameworks.jax.flat.traced import TracedFunction, trace
from lowtide.frameworks.jax.internals import jax
from lowtide.frameworks.jax.reading.bodies import bodies_of, line_of
from lowtide.frameworks.jax.reading.read import JaxTranslation, read_body
from lowtide.frameworks.jax.reading.sizes import bytes_of

_MAX_GROUPS = 12
_MAX_NAMES = 4
_MAX_DONATIONS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Donation:
    """Arguments for `jax.jit(function, donate_argnums=...)`, if the caller does not use them again."""

    argnums: tuple[int, ...]
    """Arguments with matching results for all their arrays."""
    saved_bytes: int
    others: tuple[str, ...]
    """Matching arrays in other arguments."""

    def __str__(self) -> str:
        if not self.saved_bytes:
            return "no argument matches a result, so there is nothing to donate"
        lines: list[str] = []
        if self.argnums:
            lines.append(
                f"donate_argnums={self.argnums} would save {format_bytes(self.saved_bytes)} of results, if the caller "
                "does not use these arguments again"
            )
        if self.others:
            lines.append(f"matching arrays in other arguments: {', '.join(self.others[:_MAX_DONATIONS])}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldArray:
    """An array alive at the peak."""

    holder: Holder
    type: str
    """"float32[4096,64]"."""
    source: str | None
    """File, line, function and code, if recorded."""
    within: str | None = None
    """The kernel of the loop around it."""

    def __str__(self) -> str:
        return _lines([self])


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPeak:
    """A function's temporaries at their modeled peak; print it."""

    name: str
    peak_bytes: int
    kernel: str | None
    """The kernel that runs at the peak; None without temporaries."""
    source: str | None
    held: tuple[HeldArray, ...]
    """Largest first, with the peak as their sum. Arrays in a loop's body replace its scratch."""
    donation: Donation | None
    """None for a fitted function."""

    def __str__(self) -> str:
        groups: dict[tuple[str | None, ...], list[HeldArray]] = {}
        for number, each in enumerate(self.held):
            key = each.source, each.type, each.within, None if each.source else str(number)
            groups.setdefault(key, []).append(each)
        ranked = sorted(groups.values(), key=lambda group: -_bytes_of_all(group))
        shown, rest = ranked[:_MAX_GROUPS], ranked[_MAX_GROUPS:]
        at = "" if self.kernel is None else f" at {self.kernel}"
        lines = [f"{self.name}: {format_bytes(self.peak_bytes)} of temporaries{at} (lowtide's model)"]
        lines += [f"            {self.source}"] if self.source else []
        lines += ["at the peak:", *(_lines(group) for group in shown)] if shown else []
        if rest:
            total = sum(map(_bytes_of_all, rest))
            lines.append(f"{format_bytes(total):>10}  in {sum(map(len, rest))} more")
        if self.donation is not None:
            lines.append(str(self.donation))
        return "\n".join(lines)


def explain(
    function: Callable[..., Any], example_args: Sequence[Any] = (), example_kwargs: Mapping[str, Any] | None = None
) -> FunctionPeak:
    """Return the arrays alive at the modeled peak of an unmodified function, or of a fitted one under its plan.

    Nothing is compiled. Raises UsageError if the function cannot be traced.
    """
    if isinstance(function, FittedFunction):
        found = function.found
        translation = found.form.translation
        plan = found.result.plan if found.result is not None else Plan.baseline(translation.graph)
        return _peak(f"{found.traced.name}, {found.best.name}", translation, plan, None)
    traced = trace(function, example_args, example_kwargs)
    translation = unmodified_form(traced).translation
    donation = suggest_donation(function, example_args, example_kwargs)
    return _peak(traced.name, translation, Plan.baseline(translation.graph), donation)


def suggest_donation(
    function: Callable[..., Any], example_args: Sequence[Any], example_kwargs: Mapping[str, Any] | None = None
) -> Donation:
    """Return undonated arguments that match results in shape and type; raises UsageError like `explain`."""
    traced = trace(function, example_args, example_kwargs)
    free = _unmatched_results(traced)
    leaves, _ = jax.tree_util.tree_flatten_with_path((tuple(example_args), dict(example_kwargs or {})))
    by_argument: dict[int, list[tuple[str, Any]]] = {}
    for (path, _), struct, donated in zip(leaves, traced.structs, traced.donated, strict=True):
        number = path[1].idx if path[0].idx == 0 else -1
        if not donated:
            by_argument.setdefault(number, []).append((jax.tree_util.keystr(path[1:]), struct))
    argnums: list[int] = []
    others: list[str] = []
    saved = 0
    for number, arrays in by_argument.items():
        wanted = Counter(_shape_and_dtype(struct) for _, struct in arrays)
        if number >= 0 and wanted <= free:
            free -= wanted
            argnums.append(number)
            saved += sum(bytes_of(struct) for _, struct in arrays)
    for number, arrays in by_argument.items():
        for name, struct in arrays if number not in argnums else ():
            if struct.shape and free[_shape_and_dtype(struct)] > 0:
                free[_shape_and_dtype(struct)] -= 1
                others.append(name)
    return Donation(argnums=tuple(argnums), saved_bytes=saved, others=tuple(others))


def _unmatched_results(traced: TracedFunction) -> Counter[Any]:
    inputs = set(map(id, traced.jaxpr.jaxpr.invars))
    results = [var.aval for var in traced.jaxpr.jaxpr.outvars if id(var) not in inputs]
    donations = zip(traced.structs, traced.donated, strict=True)
    return Counter(map(_shape_and_dtype, results)) - Counter(
        _shape_and_dtype(each) for each, donated in donations if donated
    )


def _shape_and_dtype(struct: Any) -> tuple[tuple[int, ...], str]:
    return tuple(struct.shape), str(struct.dtype)


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
        source=None if op is None else line_of(translation.equation(op)),
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
            inside = _held_inside(translation, plan, op, holder.size_bytes)
            if inside:
                yield from inside
                continue
            yield HeldArray(holder=holder, type="scratch", source=line_of(translation.equation(op)), within=within)
            continue
        value = values[holder.name]
        kind: Any = translation.program.types[value]
        source = None if holder.op is None else line_of(translation.equation(numbers[holder.op]), value)
        text = f"{kind.dtype}[{','.join(map(str, kind.shape))}]"
        yield HeldArray(holder=holder, type=text, source=source, within=within)


def _held_inside(translation: JaxTranslation, plan: Plan, op: OpId, scratch_bytes: int) -> list[HeldArray]:
    graph, equation = translation.graph, translation.equation(op)
    largest: list[HeldArray] = []
    for (_, body), callee in zip(bodies_of(equation.origin), graph.callees[op], strict=False):
        inner = read_body(equation, body, callee, translation.program.platform)
        inner_plan = plan.callees.get(callee) or Plan.baseline(inner.graph)
        held = list(_held(inner, inner_plan, graph.op_names[op]))
        without_outputs = [each for each in held if each.holder.lifetime != "output"]
        for found in (held, without_outputs):
            if _bytes_of_all(found) == scratch_bytes:
                largest = found
                break
    return largest


def _bytes_of_all(held: Sequence[HeldArray]) -> int:
    return sum(each.holder.size_bytes for each in held)


def _lines(group: Sequence[HeldArray]) -> str:
    first = group[0].holder
    names = ", ".join(each.holder.name for each in group[:_MAX_NAMES])
    more = f" and {len(group) - _MAX_NAMES} more" if len(group) > _MAX_NAMES else ""
    count = f"{len(group)} of " if len(group) > 1 else ""
    kept = f", kept by {', '.join(first.kept_alive_by)}" if first.kept_alive_by and len(group) == 1 else ""
    where = "" if group[0].within is None else f", in an iteration of {group[0].within}"
    lines = [f"{format_bytes(_bytes_of_all(group)):>10}  {count}{group[0].type}  {names}{more}"]
    if group[0].source is not None:
        lines.append(group[0].source)
    last = group[-1].holder.last_use
    lines.append(f"from {first.first_use or 'start'} to {last or 'end'}{kept}{where}")
    return f"\n{'':12}".join(lines)
