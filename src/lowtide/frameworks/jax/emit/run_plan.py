"""Run kernels in a plan's order."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.index_spaces import OpId, Place
from lowtide.engine.plan import CopyIn, CopyOut, Plan, Run
from lowtide.frameworks.jax.emit.ties import Crossing, can_anchor, crossings, hold, pass_barrier, recomputed_groups, tie
from lowtide.frameworks.jax.flat.program import Atom, FlatProgram, Value, content_of, run_equation
from lowtide.frameworks.jax.internals import jax, varying_axes
from lowtide.frameworks.jax.reading.kernels import Kernel, fusion_kind
from lowtide.frameworks.jax.reading.read import JaxTranslation
from lowtide.frameworks.jax.reading.sizes import bytes_of


@dataclass(frozen=True, slots=True)
class Copy:
    value: Value
    is_out: bool


Copies = Mapping[Place, Sequence[Copy]]
"""By the place of the next run."""


def copies_of(plan: Plan, translation: JaxTranslation) -> Copies:
    stored = {buffer: value for value, buffer in translation.buffers.items()}
    found: dict[Place, list[Copy]] = {}
    place = 0
    for step in plan.steps():
        if isinstance(step, Run):
            place += 1
        elif isinstance(step, CopyOut | CopyIn):
            found.setdefault(place, []).append(Copy(stored[step.buffer], isinstance(step, CopyOut)))
    return found


def run_plan(
    translation: JaxTranslation,
    runs: Sequence[OpId],
    arguments: Sequence[Any],
    window: int | None = None,
    copies: Copies | None = None,
    *,
    barriers: bool = False,
) -> list[Any]:
    """Run kernels in a sequence and return the results. Under a tracer this emits them.

    A recomputed kernel is tied to the last kernel that ran for the first time, unless it reads a value recomputed
    since. With a `window`, XLA may reorder only that many kernels at once, and kernels that read only inputs are tied
    to a held value. With `barriers`, consecutive recomputed kernels run behind one optimization barrier instead of
    ties.
    """
    program = translation.program
    contents: dict[Value, Any] = {**program.constants, **dict(zip(program.inputs, arguments, strict=True))}
    known: dict[Value, Any] = {}
    changed: set[Value] = set()  # values whose contents differ between runs
    done: set[OpId] = set()
    recomputed: set[Value] = set()
    newest: Any = None
    gate: Any = None
    crossing_at = {} if window is None else crossings(translation, runs, window)
    groups = recomputed_groups(translation, runs) if barriers else {}
    behind: dict[Value, Any] = {}
    given = {*program.inputs, *program.constants}
    on_host: dict[Value, Any] = {}
    for place, op in enumerate(runs):
        fetched = _carry_out((copies or {}).get(place, ()), contents, on_host, newest)
        changed.update(fetched)
        recomputed.update(fetched)
        kernel = translation.kernels.kernels[op]
        outputs = translation.equation(op).outputs
        if place in crossing_at:
            passed = _hold_crossing(crossing_at[place], contents)
            changed.update(passed)
            recomputed.update(passed)
            gate = next((contents[value] for value in reversed(passed) if can_anchor(contents[value])), gate)
        is_again = op in done
        if place in groups:
            group = groups[place]
            passed, anchors = pass_barrier(
                [contents[each] for each in group.reads], [contents[each] for each in group.anchors]
            )
            behind = dict(zip(group.reads, passed, strict=True))
            contents.update(zip(group.anchors, anchors, strict=True))
            changed.update(group.anchors)
        elif not is_again:
            behind = {}
        tied: dict[Value, Any] = {}
        if is_again and behind:
            tied = {value: behind[value] for value in kernel.reads if value in behind}
        elif gate is not None and given.issuperset(kernel.reads):
            tied = _tied_read(program, kernel, contents, gate)
        elif is_again and recomputed.isdisjoint(kernel.reads):
            tied = _tied_read(program, kernel, contents, newest)
        results = run_kernel(program, kernel, {**contents, **tied}, known, changed | tied.keys())
        if is_again or tied:
            changed.update(outputs)
        if is_again:
            recomputed.update(outputs)
            behind = {value: each for value, each in behind.items() if value not in outputs}
        else:
            if window is None:
                recomputed.clear()
            # XLA computes single elements of kernels that it can fuse, so these cannot be anchors
            if fusion_kind(translation.equation(op).origin) in ("stored", "reduction"):
                newest = next((each for each in reversed(results) if can_anchor(each)), newest)
            done.add(op)
        contents.update(zip(outputs, results, strict=True))
    _carry_out((copies or {}).get(len(runs), ()), contents, on_host, newest)
    return results_of(program, contents)


def needed_places(translation: JaxTranslation, runs: Sequence[OpId], count: int) -> list[Place]:
    """Return places of the runs that the first `count` results depend on.

    Effects before a needed effect are needed, to keep their order.
    """
    program, kernels = translation.program, translation.kernels
    makers = {value: equation for equation in program.equations for value in equation.outputs}
    stored = {*program.inputs, *program.constants}
    stored.update(value for kernel in kernels.kernels for value in program.equations[kernel.root].outputs)
    waiting = [atom for atom in program.outputs[:count] if isinstance(atom, int)]
    wanted: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value not in wanted:
            wanted.add(value)
            waiting.extend(() if value in stored else makers[value].reads)
    needed: list[Place] = []
    has_effects = False
    for place in reversed(range(len(runs))):
        equation = translation.equation(runs[place])
        effects = bool(equation.origin.effects)
        if not wanted.isdisjoint(equation.outputs) or (effects and has_effects):
            needed.append(place)
            has_effects |= effects
            wanted = wanted.difference(equation.outputs).union(kernels.kernels[runs[place]].reads)
    return needed[::-1]


def run_kernel(
    program: FlatProgram,
    kernel: Kernel,
    contents: Mapping[Value, Any],
    known: dict[Value, Any] | None = None,
    changed: Collection[Value] = (),
) -> Sequence[Any]:
    """Return the results of a kernel's root; `known` caches fused results that do not depend on `changed` values."""
    values = {value: contents[value] for value in kernel.reads}
    changing = set(changed)
    for position in kernel.within[:-1]:
        equation = program.equations[position]
        cache = known if changing.isdisjoint(equation.reads) else None
        if cache is None:
            changing.update(equation.outputs)
        elif all(value in cache for value in equation.outputs):
            values.update((value, cache[value]) for value in equation.outputs)
            continue
        results = run_equation(equation, [content_of(atom, values) for atom in equation.inputs])
        values.update(zip(equation.outputs, results, strict=True))
        if cache is not None:
            cache.update(zip(equation.outputs, results, strict=True))
    root = program.equations[kernel.root]
    return run_equation(root, [content_of(atom, values) for atom in root.inputs])


def results_of(program: FlatProgram, contents: Mapping[Value, Any]) -> list[Any]:
    makers = {value: equation for equation in program.equations for value in equation.outputs}
    seen = dict(contents)

    def result(atom: Atom) -> Any:
        if isinstance(atom, int) and atom not in seen:
            maker = makers[atom]
            results = run_equation(maker, [result(each) for each in maker.inputs])
            seen.update(zip(maker.outputs, results, strict=True))
        return content_of(atom, seen)

    return [result(atom) for atom in program.outputs]


def _carry_out(
    copies: Sequence[Copy], contents: dict[Value, Any], on_host: dict[Value, Any], newest: Any
) -> set[Value]:
    """Make copies and return the values copied back, tied so that XLA fetches them no earlier."""
    fetched: set[Value] = set()
    for copy in copies:
        if copy.is_out:
            on_host[copy.value] = jax.device_put(contents[copy.value], jax.memory.Space.Host)
        else:
            array = jax.device_put(on_host[copy.value], jax.memory.Space.Device)
            contents[copy.value] = tie(array, [newest] if newest is not None else [])
            fetched.add(copy.value)
    return fetched


def _hold_crossing(crossing: Crossing, contents: dict[Value, Any]) -> Sequence[Value]:
    """Hold and return values; one replicated along a mesh axis needs a replicated anchor."""
    waiting = [contents[value] for value in (*crossing.results, *crossing.values)]
    anchors = [each for each in waiting if can_anchor(each)]
    axes = min((varying_axes(anchor) for anchor in anchors), key=len, default=None)
    if axes is None:
        return ()
    values = [value for value in crossing.values if varying_axes(contents[value]) >= axes]
    results = [contents[value] for value in crossing.results if can_anchor(contents[value])]
    matching = [anchor for anchor in (*results, *anchors[-1:]) if varying_axes(anchor) <= axes]
    if not values or not matching:
        return ()
    contents.update(zip(values, hold([contents[value] for value in values], matching), strict=True))
    return values


def _tied_read(program: FlatProgram, kernel: Kernel, contents: Mapping[Value, Any], anchor: Any) -> dict[Value, Any]:
    """Return, tied, the value read with the fewest bytes to copy. Fused values are not copied."""
    copied = {each: bytes_of(program.types[each]) if each in kernel.direct else 0 for each in kernel.reads}
    for value in sorted(kernel.reads, key=copied.__getitem__):
        if anchor is not None and varying_axes(anchor) <= varying_axes(contents[value]):
            return {value: tie(contents[value], [anchor])}
    return {}
