"""Ties: a value that XLA can only compute after others, and never takes for the value itself."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from lowtide.frameworks.jax.internals import is_floating, lax

_NEVER = 0x7FC5A3D1
"""A NaN that arithmetic does not give: its payload is none that a processor writes."""
_UNSIGNED: dict[int, Any] = {2: np.uint16, 4: np.uint32}


def can_anchor(aval: Any) -> bool:
    """Return whether a value can hold others back: it has elements, of a floating-point type of two bytes or four."""
    return (
        getattr(aval, "shape", None) is not None
        and aval.size > 0
        and is_floating(aval.dtype)
        and aval.dtype.itemsize in (2, 4)
    )


def tie(value: Any, anchors: Sequence[Any]) -> Any:
    """Return `value`, bit for bit, once the anchors are there.

    Zeros are taken in its place where the first element of an anchor is one certain NaN; XLA cannot know that it never
    is, so neither can it drop the tie, nor merge what is computed from the result with what was computed before.
    """
    return lax.select_n(is_never(anchors), value, lax.full_like(value, 0)) if anchors else value


def is_never(anchors: Sequence[Any]) -> Any:
    """Return whether the first element of an anchor, of which there must be one, is the NaN that none ever is."""
    return functools.reduce(lax.bitwise_or, map(_is_never, anchors))


def _is_never(anchor: Any) -> Any:
    first = lax.reshape(lax.slice(anchor, [0] * anchor.ndim, [1] * anchor.ndim), ())
    width = anchor.dtype.itemsize
    unsigned = _UNSIGNED[width]
    pattern = unsigned(_NEVER >> (32 - 8 * width) if width < 4 else _NEVER)
    return lax.eq(lax.bitcast_convert_type(first, unsigned), pattern)
