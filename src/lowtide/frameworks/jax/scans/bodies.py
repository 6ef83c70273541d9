"""Recompute in loops and branches."""

from dataclasses import replace
from typing import Any

from jax.extend.core import ClosedJaxpr

from lowtide.engine.analysis import simulate
from lowtide.engine.plan import Plan
from lowtide.engine.planning.find_plan import find_plan
from lowtide.frameworks.jax.emit.run_plan import run_plan
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.program import Equation, FlatProgram
from lowtide.frameworks.jax.internals import jax, struct_like
from lowtide.frameworks.jax.reading.bodies import kept_results, with_bodies
from lowtide.frameworks.jax.reading.read import Counted, JaxTranslation, read_body, read_program
from lowtide.frameworks.jax.scans.choice import within
from lowtide.frameworks.jax.scans.pairs import disjoint_pairs
from lowtide.frameworks.jax.scans.saving import saving_program

_LOOPS = ("scan", "while", "cond")
_ROUNDS = 3


def with_planned_bodies(
    program: FlatProgram, limit: int, window: int | None, counted: Counted = "temporaries", kept: int | None = None
) -> FlatProgram | None:
    """Return an equivalent program with loops above `limit` modeled bytes that recompute in their bodies.

    A body that cannot meet the limit gets the lowest peak found. None if no loop is above the limit or the peak stays.
    """
    peak, position = _peak_of(read_program(program, counted, kept))
    lowest, best = peak, None
    planned: set[int] = set()
    while peak > limit and position is not None and position not in planned:
        planned.add(position)
        equations = list(program.equations)
        equations[position] = _planned_loop(equations[position], peak - limit, window, program.platform)
        program = replace(program, equations=equations)
        peak, position = _peak_of(read_program(program, counted, kept))
        if peak < lowest:
            lowest, best = peak, program
    return best


def _peak_of(translation: JaxTranslation) -> tuple[int, int | None]:
    graph = translation.graph
    plan = Plan.baseline(graph)
    footprint = simulate(graph, plan)
    space = graph.spaces[0].name
    step = footprint.peak_steps[space]
    position = translation.kernels.kernels[int(plan.targets[step])].root if step >= 0 else None
    is_loop = position is not None and translation.program.equations[position].kind in _LOOPS
    return footprint.peak_bytes[space], position if is_loop else None


def _planned_loop(equation: Equation, excess: int, window: int | None, platform: str) -> Equation:
    origin: Any = equation.origin
    peaks: dict[int, int] = {}

    def measure(body: ClosedJaxpr) -> ClosedJaxpr:
        peaks[id(body)] = _peak_of(read_body(equation, body, "body", platform))[0]
        return body

    with_bodies(origin, measure)
    limit = max(peaks.values()) - excess

    def rewrite(body: ClosedJaxpr) -> ClosedJaxpr:
        kept = kept_results(origin, body)
        return body if peaks[id(body)] <= limit else _planned_body(body, kept, limit, window, platform)

    return replace(equation, origin=with_bodies(origin, rewrite))


def _planned_body(body: ClosedJaxpr, kept: int, limit: int, window: int | None, platform: str) -> ClosedJaxpr:
    program = _saving_less(flatten(body, "body", platform=platform), kept, limit)
    program = with_planned_bodies(program, limit, window, "callee", kept) or program
    translation = read_program(program, "callee", kept)
    settings = within(max(1, limit))
    runs: list[int] = find_plan(translation.graph, settings).plan.order().tolist()

    def planned(*values: Any) -> list[Any]:
        return run_plan(translation, runs, values, window)

    try:
        return jax.make_jaxpr(planned)(*map(struct_like, body.in_avals))
    except NameError:  # JAX traces a collective only inside its mesh
        return body


def _saving_less(program: FlatProgram, kept: int, limit: int) -> FlatProgram:
    allowed = sum(pair.saved_bytes for pair in disjoint_pairs(program))
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
