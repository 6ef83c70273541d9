"""What an equation calls: bodies of loops, branches, programs of a device mesh, functions with their own derivative."""

from collections.abc import Callable, Iterator
from typing import Any, cast

from jax.extend.core import ClosedJaxpr, Jaxpr

_CALLED_WHOLE = ("custom_jvp_call", "custom_vjp_call")
"""Calls whose equations XLA fuses as if they stood in line; small functions, taken for one kernel."""


def kept_results(eqn: Any, body: ClosedJaxpr) -> int:
    """Return how many results of a body, its first ones, are there until it ends.

    A scan's state is; what it collects is written into the caller's stacks at once, and results of a branch into the
    caller's own.
    """
    kind = eqn.primitive.name
    return eqn.params["num_carry"] if kind == "scan" else 0 if kind == "cond" else len(body.jaxpr.outvars)


def bodies_of(eqn: Any) -> Iterator[tuple[str, ClosedJaxpr]]:
    """Iterate the jaxprs that an equation runs, each with a label that is its own within the equation."""
    if eqn.primitive.name in _CALLED_WHOLE:
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
    """Return a loop or a branch with other jaxprs of the same types in the place of those that it runs."""
    params: dict[str, Any] = {}
    for name, value in eqn.params.items():
        if isinstance(value, ClosedJaxpr):
            params[name] = rewrite(value)
        elif isinstance(value, tuple) and any(isinstance(each, ClosedJaxpr) for each in cast("tuple[Any, ...]", value)):
            params[name] = tuple(rewrite(each) for each in cast("tuple[ClosedJaxpr, ...]", value))
        else:
            params[name] = value
    return eqn.replace(params=params)
