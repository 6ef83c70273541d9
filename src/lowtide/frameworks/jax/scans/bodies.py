"""Bodies of loops and branches that run kernels again, so that a turn needs less at once."""

from dataclasses import replace
from typing import Any

from jax.extend.core import ClosedJaxpr

from lowtide.engine.analysis import simulate
from lowtide.engine.plan import Plan
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.jax.emit.emit import run_plan
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.program import Equation, FlatProgram
from lowtide.frameworks.jax.internals import ShapeDtypeStruct, make_jaxpr
from lowtide.frameworks.jax.reading.callees import kept_results, with_bodies
from lowtide.frameworks.jax.reading.read import Counted, JaxTranslation, read_body, read_program
from lowtide.frameworks.jax.scans.pairs import apart, scan_pairs
from lowtide.frameworks.jax.scans.saving import saving_program

_LOOPS = ("scan", "while", "cond")
_TECHNIQUES = frozenset(("reorder", "share", "recompute"))
_ROUNDS = 3


def with_planned_bodies(
    program: FlatProgram, limit: int, window: int | None, counted: Counted = "temporaries", kept: int | None = None
) -> FlatProgram | None:
    """Return a program that computes the same, whose loops that are above a limit run kernels of their bodies again.

    A body is planned once, for all turns, with the scans and loops in it; its order is left to XLA, or with a `window`
    held. None where no loop is above the limit, or none can do with less. Where a body cannot be brought so far, it
    takes the least that planning found. The limit and the peaks are those of the model.
    """
    changed = False
    for _ in range(sum(equation.kind in _LOOPS for equation in program.equations)):
        translation = read_program(program, counted, kept)
        peak, position = _peak_of(translation)
        if peak <= limit or position is None:
            break
        equations = list(program.equations)
        equations[position] = _planned(equations[position], peak - limit, window)
        lowered = replace(program, equations=equations)
        if _peak_of(read_program(lowered, counted, kept))[0] >= peak:
            break
        program, changed = lowered, True
    return program if changed else None


def _peak_of(translation: JaxTranslation) -> tuple[int, int | None]:
    """Return the peak in program order, and where a loop runs then, the position of its equation."""
    graph = translation.graph
    plan = Plan.baseline(graph)
    footprint = simulate(graph, plan)
    space = graph.spaces[0].name
    step = footprint.peak_steps[space]
    position = translation.kernels.kernels[int(plan.targets[step])].root if step >= 0 else None
    is_loop = position is not None and translation.program.equations[position].kind in _LOOPS
    return footprint.peak_bytes[space], position if is_loop else None


def _planned(equation: Equation, excess: int, window: int | None) -> Equation:
    """Return a loop whose bodies need so many bytes less than the largest of them needs now, or as few as they can."""
    origin: Any = equation.origin
    peaks: dict[int, int] = {}

    def measure(body: ClosedJaxpr) -> ClosedJaxpr:
        peaks[id(body)] = _peak_of(read_body(equation, body, "body"))[0]
        return body

    with_bodies(origin, measure)
    limit = max(peaks.values()) - excess

    def rewrite(body: ClosedJaxpr) -> ClosedJaxpr:
        return body if peaks[id(body)] <= limit else _within(body, kept_results(origin, body), limit, window)

    return replace(equation, origin=with_bodies(origin, rewrite))


def _within(body: ClosedJaxpr, kept: int, limit: int, window: int | None) -> ClosedJaxpr:
    """Return a body that needs no more than a limit, or as little as planning found."""
    program = _saving_less(flatten(body, "body"), kept, limit)
    program = with_planned_bodies(program, limit, window, "callee", kept) or program
    translation = read_program(program, "callee", kept)
    settings = PlanSettings(
        budget=max(1, limit), transient=True, techniques=_TECHNIQUES, effort="fast", addresses=False
    )
    runs: list[int] = find_plan(translation.graph, settings).plan.order().tolist()
    structs = [ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in body.in_avals]

    def turn(*values: Any) -> list[Any]:
        return run_plan(translation, runs, values, window)

    try:
        return make_jaxpr(turn)(*structs)
    except NameError:  # a collective, which JAX traces only where its axis has a name
        return body


def _saving_less(program: FlatProgram, kept: int, limit: int) -> FlatProgram:
    """Return a body whose scans save less, as far as its peak under the model asks for it."""
    allowed = sum(pair.saved_bytes for pair in apart(scan_pairs(program)))
    best, peak = program, _peak_of(read_program(program, "callee", kept))[0]
    for _ in range(_ROUNDS):
        if peak <= limit or not allowed:
            break
        allowed = max(0, allowed - max(peak - limit, allowed // 50))
        saving = saving_program(program, allowed)
        if saving is None:
            break
        found = _peak_of(read_program(saving.program, "callee", kept))[0]
        if found < peak:
            best, peak = saving.program, found
        allowed = 0 if saving.is_least else saving.saved_bytes
    return best
