"""Trace a function without computing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax import Array
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr

from lowtide.core.errors import LowtideError, UsageError, named_type, one_line
from lowtide.frameworks.jax.internals import is_unspecified, jax


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedFunction:
    """A jaxpr with its structure of arguments and results."""

    name: str
    jaxpr: ClosedJaxpr
    in_tree: Any
    """Of (arguments, keyword arguments)."""
    out_tree: Any
    structs: tuple[Any, ...]
    """Shape, dtype and sharding (if the example had one) by leaf."""
    donated: tuple[bool, ...]
    shardings: tuple[Any, Any] | None
    """Of arguments and results, if required."""


def trace(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> TracedFunction:
    """Trace a function on arrays or ShapeDtypeStructs.

    Raises UsageError if the function cannot be traced or has static arguments.
    """
    if not callable(function):
        raise UsageError(f"cannot trace {named_type(function)}; give a function of arrays")
    named: dict[str, Any] = dict(kwargs or {})
    jitted: Any = function if hasattr(function, "trace") else jax.jit(function)
    leaves, in_tree = jax.tree.flatten((tuple(args), named))
    traced = _attempted(lambda: jitted.trace(*args, **named))
    if traced.in_tree != in_tree or len(leaves) != len(traced.jaxpr.jaxpr.invars):
        raise UsageError("the function has static arguments; bind them with functools.partial, and jit the result")
    outer = _attempted(lambda: jax.make_jaxpr(jitted)(*args, **named)) if jitted is function else None
    return TracedFunction(
        name=str(traced.fun_name),
        jaxpr=traced.jaxpr,
        in_tree=in_tree,
        out_tree=traced.out_tree,
        structs=tuple(struct_of(leaf) for leaf in leaves),
        donated=tuple(bool(info.donated) for info in jax.tree.leaves(traced.args_info, is_leaf=_is_info)),
        shardings=None if outer is None else _shardings(outer),
    )


def of_jaxpr(closed: ClosedJaxpr, structs: Sequence[Any]) -> TracedFunction:
    return TracedFunction(
        name="jaxpr",
        jaxpr=closed,
        in_tree=jax.tree.structure((tuple(structs), {})),
        out_tree=jax.tree.structure(list(closed.out_avals)),
        structs=tuple(structs),
        donated=(False,) * len(structs),
        shardings=None,
    )


def struct_of(leaf: Any) -> Any:
    """Return a leaf's shape and dtype, with the sharding of a committed array."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    aval: Any = jax.typeof(leaf)
    is_placed = isinstance(leaf, Array) and not isinstance(leaf, Tracer) and leaf.committed
    sharding = leaf.sharding if is_placed else None
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=getattr(aval, "weak_type", False))


def _attempted(tracing: Callable[[], Any]) -> Any:
    try:
        return tracing()
    except LowtideError:
        raise
    except Exception as error:  # user code and JAX may raise anything
        raise UsageError(f"the function cannot be traced: {type(error).__name__}: {one_line(error, 400)}") from error


def _is_info(node: Any) -> bool:
    return hasattr(node, "donated")


def _shardings(outer: ClosedJaxpr) -> tuple[Any, Any] | None:
    eqns = outer.jaxpr.eqns
    if len(eqns) != 1 or "in_shardings" not in eqns[0].params:
        return None
    required = tuple(eqns[0].params["in_shardings"]), tuple(eqns[0].params["out_shardings"])
    if all(is_unspecified(each) for side in required for each in side):
        return None
    return required
