"""Ties, barriers and holds, which fix the order of kernels in XLA."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.core.index_spaces import OpId, Place
from lowtide.frameworks.jax.flat.program import Value
from lowtide.frameworks.jax.internals import is_floating, jax
from lowtide.frameworks.jax.reading.read import JaxTranslation
from lowtide.frameworks.jax.reading.sizes import bytes_of

_NEVER = 0x7FC5A3D1
"""A NaN whose payload no arithmetic produces."""
_ANCHORS = 3
_RECENT = 40
_UNSIGNED: dict[int, Any] = {2: np.uint16, 4: np.uint32}


def can_anchor(aval: Any) -> bool:
    return (
        getattr(aval, "shape", None) is not None
        and aval.size > 0
        and is_floating(aval.dtype)
        and aval.dtype.itemsize in (2, 4)
    )


def tie(value: Any, anchors: Sequence[Any]) -> Any:
    """Return `value`, bit for bit, computed after the anchors.

    XLA can neither drop the tie nor merge its readers with those of `value`.
    """
    return jax.lax.select_n(_has_never(anchors), value, jax.lax.full_like(value, 0)) if anchors else value


def pass_barrier(values: Sequence[Any], anchors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return `values` and `anchors`, unchanged and not copied, from where XLA computes neither before all are known.

    XLA drops the part of an anchor whose result is not read, and with it the order.
    """
    passed = list(jax.lax.optimization_barrier((*values, *anchors)))
    return passed[: len(values)], passed[len(values) :]


def hold(values: Sequence[Any], anchors: Sequence[Any]) -> list[Any]:
    """Return `values`, bit for bit and in their storage, once all of them and the anchors are computed.

    XLA neither copies nor fuses them. Derivatives pass through. At least one anchor is needed.
    """
    return list(_held(_has_never(anchors), *values))


def _has_never(anchors: Sequence[Any]) -> Any:
    return functools.reduce(jax.lax.bitwise_or, map(_is_never, anchors))


def _is_never(anchor: Any) -> Any:
    first = jax.lax.reshape(jax.lax.slice(anchor, [0] * anchor.ndim, [1] * anchor.ndim), ())
    width = anchor.dtype.itemsize
    unsigned = _UNSIGNED[width]
    pattern = unsigned(_NEVER >> (32 - 8 * width) if width < 4 else _NEVER)
    return jax.lax.eq(jax.lax.bitcast_convert_type(first, unsigned), pattern)


@jax.custom_jvp
def _held(never: Any, *values: Any) -> Sequence[Any]:
    def condition(state: Sequence[Any]) -> Any:
        return state[0]

    def body(state: Sequence[Any]) -> Sequence[Any]:
        return jax.numpy.zeros_like(state[0]), *map(_changed, state[1:])

    return jax.lax.while_loop(condition, body, (never, *values))[1:]


@_held.defjvp
def _pass_on(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:  # pyright: ignore[reportUnusedFunction]
    return _held(*primals), tuple(tangents[1:])


def _changed(value: Any) -> Any:
    """Return another value in place, since XLA moves unchanged state out of a loop."""
    return jax.lax.neg(value) if is_floating(value.dtype) else jax.lax.full_like(value, 0)


@dataclass(frozen=True, slots=True)
class Crossing:
    values: tuple[Value, ...]
    """Read by the next window, or made by the last one and read later."""
    results: tuple[Value, ...]
    """Results that nothing reads any more."""


def crossings(translation: JaxTranslation, runs: Sequence[OpId], length: int) -> dict[Place, Crossing]:
    """Return the values held before each window of `length` runs, by the place of its first run.

    Inputs and constants are not held, since XLA would copy them. The first window starts at the first recomputed run or
    one window after the most saved bytes, so that XLA can merge the forward pass with a separate one.
    """
    program, base = translation.program, translation.kernels.base
    given = {*program.inputs, *program.constants}
    returned = {base[atom] for atom in program.outputs if isinstance(atom, int)} - given
    read_later = _read_later(translation, runs)
    found: dict[Place, Crossing] = {}
    before = 0
    for start in range(_first_hold(translation, runs, length, read_later), len(runs), length):
        last, following = runs[before:start], runs[start : start + length]
        made = dict.fromkeys(value for op in last for value in translation.equation(op).outputs)
        inside = {value for op in last for value in translation.kernels.kernels[op].reads}
        ends = (value for value in made if value in read_later[start] and value not in inside)
        values = dict.fromkeys((*ends, *_earlier_reads(translation, following, given)))
        results = tuple(value for value in made if value in returned - read_later[start] - inside)
        found[start] = Crossing(tuple(values), results)
        before = start
    return found


@dataclass(frozen=True, slots=True)
class RecomputedGroup:
    reads: tuple[Value, ...]
    anchors: tuple[Value, ...]


def recomputed_groups(translation: JaxTranslation, runs: Sequence[OpId]) -> dict[Place, RecomputedGroup]:
    """Return groups of recomputed runs that have an anchor, by the place of their first run."""
    read_later = _read_later(translation, runs)
    found: dict[Place, RecomputedGroup] = {}
    done: set[OpId] = set()
    recent: list[Value] = []
    place = 0
    while place < len(runs):
        end = place
        reads: dict[Value, None] = {}
        made: set[Value] = set()
        while end < len(runs) and runs[end] in done:
            reads |= dict.fromkeys(each for each in translation.kernels.kernels[runs[end]].reads if each not in made)
            made.update(translation.equation(runs[end]).outputs)
            end += 1
        if end > place:
            later = read_later[end] if end < len(runs) else set[Value]()
            anchors = [each for each in recent if each in later and each not in reads and each not in made]
            if anchors:
                found[place] = RecomputedGroup(tuple(reads), tuple(anchors[-_ANCHORS:]))
            place = end
        else:
            recent = [*recent[1 - _RECENT :], *translation.equation(runs[place]).outputs]
            done.add(runs[place])
            place += 1
    return found


def _first_recomputed(runs: Sequence[OpId]) -> Place | None:
    seen: set[OpId] = set()
    for place, op in enumerate(runs):
        if op in seen:
            return place
        seen.add(op)
    return None


def _first_hold(
    translation: JaxTranslation, runs: Sequence[OpId], length: int, read_later: dict[Place, set[Value]]
) -> Place:
    recomputed = _first_recomputed(runs)
    if recomputed is None:
        return length
    program = translation.program
    given = {*program.inputs, *program.constants}
    saved = [sum(bytes_of(program.types[each]) for each in read_later[place] - given) for place in range(recomputed)]
    return min(recomputed, saved.index(max(saved)) + length)


def _earlier_reads(translation: JaxTranslation, window: Sequence[OpId], given: set[Value]) -> Iterator[Value]:
    made: set[Value] = set()
    for op in window:
        yield from (value for value in translation.kernels.kernels[op].reads if value not in made | given)
        made.update(translation.equation(op).outputs)


def _read_later(translation: JaxTranslation, runs: Sequence[OpId]) -> dict[Place, set[Value]]:
    """Return, per place, values read from there on before they are computed again."""
    alive: set[Value] = set()
    found: dict[Place, set[Value]] = {}
    for place in range(len(runs) - 1, -1, -1):
        op = runs[place]
        alive = alive.difference(translation.equation(op).outputs).union(translation.kernels.kernels[op].reads)
        found[place] = alive
    return found
