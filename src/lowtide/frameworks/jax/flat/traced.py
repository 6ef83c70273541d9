"""A user's function traced for example arguments: nothing is computed, nothing allocated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax import Array
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr

from lowtide.core.errors import LowtideError, UsageError, one_line
from lowtide.frameworks.jax.internals import ShapeDtypeStruct, is_unspecified, jit, make_jaxpr, tree, typeof


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedFunction:
    """A function as JAX sees it: its jaxpr, and how its arguments and results become flat lists."""

    name: str
    jaxpr: ClosedJaxpr
    in_tree: Any
    """Of (arguments, keyword arguments)."""
    out_tree: Any
    structs: tuple[Any, ...]
    """Shape, dtype and, where the example had one, sharding of every leaf of the arguments."""
    donated: tuple[bool, ...]
    shardings: tuple[Any, Any] | None
    """What a jitted function asks of the leaves of its arguments and results; None where it asks nothing."""


def trace(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> TracedFunction:
    """Trace a function, jitted or not, for example arguments: arrays, or ShapeDtypeStructs.

    Raises UsageError in one line where the function cannot be traced for them, or has static arguments.
    """
    if not callable(function):
        raise UsageError(f"cannot trace a {type(function).__name__}; give a function of arrays")
    named: dict[str, Any] = dict(kwargs or {})
    jitted: Any = function if hasattr(function, "trace") else jit(function)
    leaves, in_tree = tree.flatten((tuple(args), named))
    traced = _attempted(lambda: jitted.trace(*args, **named))
    if traced.in_tree != in_tree or len(leaves) != len(traced.jaxpr.jaxpr.invars):
        raise UsageError("the function has static arguments; bind them first, with functools.partial, and jit the rest")
    outer = _attempted(lambda: make_jaxpr(jitted)(*args, **named)) if jitted is function else None
    return TracedFunction(
        name=str(traced.fun_name),
        jaxpr=traced.jaxpr,
        in_tree=in_tree,
        out_tree=traced.out_tree,
        structs=tuple(struct_of(leaf) for leaf in leaves),
        donated=tuple(bool(info.donated) for info in tree.leaves(traced.args_info, is_leaf=_is_info)),
        shardings=None if outer is None else _shardings(outer),
    )


def of_jaxpr(closed: ClosedJaxpr, structs: Sequence[Any]) -> TracedFunction:
    """Return a jaxpr alone as a function of its inputs."""
    return TracedFunction(
        name="jaxpr",
        jaxpr=closed,
        in_tree=tree.structure((tuple(structs), {})),
        out_tree=tree.structure(list(closed.out_avals)),
        structs=tuple(structs),
        donated=(False,) * len(structs),
        shardings=None,
    )


def _attempted(tracing: Callable[[], Any]) -> Any:
    try:
        return tracing()
    except LowtideError:
        raise
    except Exception as error:  # whatever the user's code and JAX raise
        raise UsageError(f"the function cannot be traced: {type(error).__name__}: {one_line(error, 400)}") from error


def struct_of(leaf: Any) -> Any:
    """Return shape and dtype of an array, a scalar or a struct, and its sharding where it is bound to one."""
    if isinstance(leaf, ShapeDtypeStruct):
        return leaf
    aval: Any = typeof(leaf)
    placed = isinstance(leaf, Array) and not isinstance(leaf, Tracer) and leaf.committed
    sharding = leaf.sharding if placed else None
    return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=getattr(aval, "weak_type", False))


def _is_info(node: Any) -> bool:
    return hasattr(node, "donated")


def _shardings(outer: ClosedJaxpr) -> tuple[Any, Any] | None:
    eqns = outer.jaxpr.eqns
    if len(eqns) != 1 or "in_shardings" not in eqns[0].params:
        return None
    asked = tuple(eqns[0].params["in_shardings"]), tuple(eqns[0].params["out_shardings"])
    if all(is_unspecified(each) for side in asked for each in side):
        return None
    return asked
