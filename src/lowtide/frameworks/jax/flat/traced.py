"""Trace a function without computing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax import Array
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr

from lowtide.core.errors import LowtideError, UsageError, named_type, one_line
from lowtide.frameworks.jax.internals import is_unspecified, jax

HOST_KIND = "pinned_host"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """Arguments that stay in pinned host memory between calls, by leaf, and the results that replace them."""

    arguments: tuple[int, ...]
    results: tuple[int, ...]
    n_bytes: int
    """Per device."""


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
    state: HostState | None = None
    """On the host."""

    @property
    def platform(self) -> str:
        """The platform that examples are placed on, by default JAX's."""
        placed = (each.sharding for each in self.structs if each.sharding is not None)
        return next((device.platform for each in placed for device in each.device_set), jax.default_backend())

    def on_device(self, device: Any) -> "TracedFunction":
        """Return this function with all arguments on one device. Raises UsageError for arguments on several devices."""
        placed = [each.sharding for each in self.structs if each.sharding is not None]
        if self.shardings is not None or any(len(each.device_set) > 1 for each in placed):
            raise UsageError("device= compiles for one device; give examples without shardings")
        sharding = jax.sharding.SingleDeviceSharding(device)
        return replace(self, structs=tuple(_with_sharding(each, sharding) for each in self.structs))

    def with_state_on_host(self, state: HostState, results: Sequence[Any]) -> "TracedFunction":
        """Return this function with state on the host, donated there; `results` are shardings without it."""
        here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        structs, outside = list(self.structs), list(results)
        inside = None if self.shardings is None else list(self.shardings[0])
        for place, result in zip(state.arguments, state.results, strict=True):
            required = inside[place] if inside is not None and not is_unspecified(inside[place]) else None
            sharding = (required or structs[place].sharding or here).with_memory_kind(HOST_KIND)
            structs[place] = _with_sharding(structs[place], sharding)
            outside[result] = sharding
            if inside is not None:
                inside[place] = sharding
        return replace(self, structs=tuple(structs), shardings=(inside, tuple(outside)), state=state)

    def around(self, flat: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """Return a function of leaves whose state comes from the host and returns there."""
        state = self.state
        if state is None:
            return flat

        def from_host(*leaves: Any) -> Sequence[Any]:
            given = _moved(leaves, state.arguments, jax.memory.Space.Device)
            return _moved(flat(*given), state.results, jax.memory.Space.Host)

        return from_host

    def placed(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """Return arguments with state on the host, and with all others on the device."""
        state = () if self.state is None else self.state.arguments
        return [
            leaf if (_memory_kind(leaf) == HOST_KIND) == (place in state) else _at_home(leaf, self.structs[place])
            for place, leaf in enumerate(leaves)
        ]


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


def off_host(struct: Any) -> Any:
    """Return a struct without its place on the host."""
    sharding = struct.sharding
    if sharding is None or sharding.memory_kind != HOST_KIND:
        return struct
    return _with_sharding(struct, sharding.with_memory_kind("device"))


def _memory_kind(leaf: Any) -> str | None:
    return leaf.sharding.memory_kind if isinstance(leaf, Array) and not isinstance(leaf, Tracer) else None


def _with_sharding(struct: Any, sharding: Any) -> Any:
    return jax.ShapeDtypeStruct(struct.shape, struct.dtype, sharding=sharding, weak_type=struct.weak_type)


def _moved(leaves: Sequence[Any], places: Sequence[int], space: Any) -> list[Any]:
    moved = list(leaves)
    for place in places:
        moved[place] = jax.device_put(moved[place], space)
    return moved


def _at_home(leaf: Any, struct: Any) -> Any:
    return jax.device_put(leaf, struct.sharding or leaf.sharding.with_memory_kind("device"))


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
