"""Bodies of loops, branches and calls; lines of user code."""

import linecache
from collections.abc import Callable, Iterator
from typing import Any, cast

from jax.extend.core import ClosedJaxpr, Jaxpr

from lowtide.frameworks.jax.flat.program import Equation, Value
from lowtide.frameworks.jax.internals import scan_counts, user_frame

_FUSED_CALLS = ("custom_jvp_call", "custom_vjp_call")
"""Fused by XLA as if inlined; each call is one kernel."""


def kept_results(eqn: Any, body: ClosedJaxpr) -> int:
    """Return how many first results of a body live until it ends; others go to the caller's arrays at once."""
    kind = eqn.primitive.name
    return scan_counts(eqn.params)[1] if kind == "scan" else 0 if kind == "cond" else len(body.jaxpr.outvars)


def bodies_of(eqn: Any) -> Iterator[tuple[str, ClosedJaxpr]]:
    if eqn.primitive.name in _FUSED_CALLS:
        return
    for name, value in sorted(eqn.params.items()):
        bodies = cast("tuple[Any, ...]", value if isinstance(value, tuple | list) else (value,))
        for number, body in enumerate(bodies):
            label = name.removesuffix("_jaxpr").removesuffix("jaxpr") or "body"
            if isinstance(body, ClosedJaxpr):
                yield f"{label}{number or ''}", body
            elif isinstance(body, Jaxpr) and not body.constvars:
                yield f"{label}{number or ''}", ClosedJaxpr(body, ())


def with_bodies(eqn: Any, rewrite: Callable[[ClosedJaxpr], ClosedJaxpr]) -> Any:
    params: dict[str, Any] = {}
    for name, value in eqn.params.items():
        if isinstance(value, ClosedJaxpr):
            params[name] = rewrite(value)
        elif isinstance(value, tuple) and any(isinstance(each, ClosedJaxpr) for each in cast("tuple[Any, ...]", value)):
            params[name] = tuple(rewrite(each) for each in cast("tuple[ClosedJaxpr, ...]", value))
        else:
            params[name] = value
    return eqn.replace(params=params)


def source_of(equation: Equation, value: Value | None = None) -> str | None:
    """Return file, line and function of an equation, or of the inner one that made `value`."""
    frame = _frame_of(equation, value)
    return None if frame is None else "{}:{} in {}".format(*frame)


def line_of(equation: Equation, value: Value | None = None) -> str | None:
    frame = _frame_of(equation, value)
    if frame is None:
        return None
    code = linecache.getline(frame[0], frame[1]).strip()
    return " ".join(filter(None, ("{}:{} in {} ".format(*frame), code))).strip()


def _frame_of(equation: Equation, value: Value | None) -> tuple[str, int, str] | None:
    inside = None if value is None else _producer(equation.origin, equation.outputs.index(value))
    for traced in (inside, equation.origin, equation.call):
        frame = None if traced is None else user_frame(traced)
        if frame is not None:
            return frame
    return None


def _producer(eqn: Any, place: int) -> Any:
    for _, body in bodies_of(eqn):
        results = body.jaxpr.outvars
        if len(results) != len(eqn.outvars):  # a condition
            continue
        wanted = results[place]
        for inner in reversed(body.jaxpr.eqns):
            if any(var is wanted for var in inner.outvars):
                number = next(n for n, var in enumerate(inner.outvars) if var is wanted)
                deeper = _producer(inner, number)
                return deeper if deeper is not None else inner if user_frame(inner) is not None else None
    return None
