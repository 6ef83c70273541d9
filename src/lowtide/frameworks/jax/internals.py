"""Untyped and private names of JAX; a new version is ported here."""

from typing import Any

import jax
from jax import custom_derivatives
from jax import export as jax_export
from jax._src import source_info_util
from jax.extend import core as extend_core

_jax: Any = jax
jit: Any = _jax.jit
make_jaxpr: Any = _jax.make_jaxpr
live_arrays: Any = _jax.live_arrays
tree: Any = _jax.tree
typeof: Any = _jax.typeof
numpy: Any = _jax.numpy
lax: Any = _jax.lax
shard_map: Any = _jax.shard_map
jaxpr_as_fun: Any = extend_core.jaxpr_as_fun
random: Any = _jax.random
custom_jvp: Any = _jax.custom_jvp
custom_vjp: Any = _jax.custom_vjp
vjp: Any = _jax.vjp
export: Any = jax_export.export
deserialize: Any = jax_export.deserialize
block_until_ready: Any = _jax.block_until_ready
keystr: Any = _jax.tree_util.keystr
tree_paths: Any = _jax.tree_util.tree_flatten_with_path
ShapeDtypeStruct: Any = _jax.ShapeDtypeStruct
Partial: Any = _jax.tree_util.Partial
SymbolicZero: Any = custom_derivatives.SymbolicZero


def instantiated(zero: Any) -> Any:
    """Return a symbolic zero as an array."""
    return numpy.zeros(zero.shape, zero.dtype)


def in_host_space(array: Any) -> Any:
    """Return a copy in host memory."""
    return _jax.device_put(array, _jax.memory.Space.Host)


def in_device_space(array: Any) -> Any:
    """Return a copy in device memory."""
    return _jax.device_put(array, _jax.memory.Space.Device)


def has_host_space() -> bool:
    """Return whether the default device has pinned host memory besides its own."""
    device = _jax.devices()[0]
    kinds = {memory.kind for memory in device.addressable_memories()}
    return device.platform != "cpu" and "pinned_host" in kinds


def is_random_key(dtype: Any) -> bool:
    """Return whether `dtype` is that of a typed random key."""
    return bool(numpy.issubdtype(dtype, _jax.dtypes.prng_key))


def is_floating(dtype: Any) -> bool:
    """Return whether `dtype` is a real floating-point type of any width."""
    return bool(numpy.issubdtype(dtype, numpy.floating))


def is_unspecified(sharding: Any) -> bool:
    """Return whether no sharding was requested."""
    return type(sharding).__name__ == "UnspecifiedValue"


def varying_axes(value: Any) -> frozenset[Any]:
    """Return the mesh axes along which a value is known to vary."""
    return frozenset(getattr(getattr(typeof(value), "mat", None), "varying", ()))


def struct_like(aval: Any) -> Any:
    """Return a ShapeDtypeStruct with the shape, dtype and weak type of an abstract value."""
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def user_frame(eqn: Any) -> tuple[str, int, str] | None:
    """Return file, line and function of an equation in user code, if recorded."""
    frame: Any = source_info_util.user_frame(eqn.source_info.traceback)
    return None if frame is None else (frame.file_name, frame.start_line, frame.function_name)
