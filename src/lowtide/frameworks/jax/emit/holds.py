"""Holds: places in a program that XLA cannot move kernels across, whatever its scheduler would rather do."""

from collections.abc import Sequence
from typing import Any

from lowtide.frameworks.jax.emit.ties import is_never
from lowtide.frameworks.jax.internals import custom_jvp, is_floating, lax, numpy


def hold(values: Sequence[Any], anchors: Sequence[Any]) -> list[Any]:
    """Return `values`, bit for bit and in their own storage, once all of them and the anchors are there.

    A loop that never turns takes all of them as its state: XLA cannot know that it never does, runs what makes the
    state before it and what reads the results after it, and neither copies the state nor fuses across. Derivatives pass
    as through the values themselves.
    """
    return list(_held(is_never(anchors), *values))


@custom_jvp
def _held(never: Any, *values: Any) -> Sequence[Any]:
    def turns(state: Sequence[Any]) -> Any:
        return state[0]

    def turn(state: Sequence[Any]) -> Sequence[Any]:
        return numpy.zeros_like(state[0]), *map(_changed, state[1:])

    return lax.while_loop(turns, turn, (never, *values))[1:]


@_held.defjvp
def _pass_on(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:  # pyright: ignore[reportUnusedFunction]
    return _held(*primals), tuple(tangents[1:])


def _changed(value: Any) -> Any:
    """Return something else than the value, written where it lies: XLA takes what does not change out of a loop."""
    return lax.neg(value) if is_floating(value.dtype) else lax.full_like(value, 0)
