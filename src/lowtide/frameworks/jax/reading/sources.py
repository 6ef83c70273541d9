"""Where the user's code has what a value holds: file, line, function and the line itself."""

import linecache
from typing import Any

from lowtide.frameworks.jax.flat.program import Equation, Value
from lowtide.frameworks.jax.internals import user_frame
from lowtide.frameworks.jax.reading.callees import bodies_of


def source_of(equation: Equation, value: Value | None = None) -> str | None:
    """Return file, line and function of the user's code that an equation was traced in; None where JAX kept none.

    Of a `value` that a loop or a branch returns it is the line in its body that made it.
    """
    frame = _frame_of(equation, value)
    return None if frame is None else "{}:{} in {}".format(*frame)


def line_of(equation: Equation, value: Value | None = None) -> str | None:
    """Return the same with the line itself, where its file can be read."""
    frame = _frame_of(equation, value)
    if frame is None:
        return None
    code = linecache.getline(frame[0], frame[1]).strip()
    return " ".join(filter(None, ("{}:{} in {} ".format(*frame), code))).strip()


def _frame_of(equation: Equation, value: Value | None) -> tuple[str, int, str] | None:
    inside = None if value is None else _inside(equation.origin, equation.outputs.index(value))
    for traced in (inside, equation.origin, equation.call):
        frame = None if traced is None else user_frame(traced)
        if frame is not None:
            return frame
    return None


def _inside(eqn: Any, place: int) -> Any:
    """Return the innermost equation that makes a loop's result in its body, whose line JAX kept; None without one."""
    for _, body in bodies_of(eqn):
        results = body.jaxpr.outvars
        if len(results) != len(eqn.outvars):  # a condition
            continue
        wanted = results[place]
        for inner in reversed(body.jaxpr.eqns):
            if any(var is wanted for var in inner.outvars):
                number = next(n for n, var in enumerate(inner.outvars) if var is wanted)
                deeper = _inside(inner, number)
                return deeper if deeper is not None else inner if user_frame(inner) is not None else None
    return None
