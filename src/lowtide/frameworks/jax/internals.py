"""Everything of JAX that is untyped or private to it: a new JAX is ported here."""

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
ShapeDtypeStruct: Any = _jax.ShapeDtypeStruct


Partial: Any = _jax.tree_util.Partial
SymbolicZero: Any = custom_derivatives.SymbolicZero


def instantiated(zero: Any) -> Any:
    """Return the zeros that a symbolic zero stands for."""
    return numpy.zeros(zero.shape, zero.dtype)


def in_host_space(array: Any) -> Any:
    """Return an array copied to the host's memory space; a compiler may drop that where both spaces are one memory."""
    return _jax.device_put(array, _jax.memory.Space.Host)


def in_device_space(array: Any) -> Any:
    """Return an array copied to the device's own memory space."""
    return _jax.device_put(array, _jax.memory.Space.Device)


def has_host_space() -> bool:
    """Return whether the default device has a memory of its own, and another one on its host."""
    device = _jax.devices()[0]
    kinds = {memory.kind for memory in device.addressable_memories()}
    return device.platform != "cpu" and "pinned_host" in kinds


export: Any = jax_export.export
deserialize: Any = jax_export.deserialize
block_until_ready: Any = _jax.block_until_ready
keystr: Any = _jax.tree_util.keystr
tree_paths: Any = _jax.tree_util.tree_flatten_with_path


def is_random_key(dtype: Any) -> bool:
    """Return whether elements of this type are typed random keys."""
    return bool(numpy.issubdtype(dtype, _jax.dtypes.prng_key))


def is_floating(dtype: Any) -> bool:
    """Return whether elements of this type are real floating-point numbers, of any width."""
    return bool(numpy.issubdtype(dtype, numpy.floating))


def is_unspecified(sharding: Any) -> bool:
    """Return whether a sharding is JAX's word for none asked."""
    return type(sharding).__name__ == "UnspecifiedValue"


def varying_axes(value: Any) -> frozenset[Any]:
    """Return the axes of a mesh that a value differs along, as far as JAX keeps track of that."""
    return frozenset(getattr(getattr(typeof(value), "mat", None), "varying", ()))


def user_frame(eqn: Any) -> tuple[str, int, str] | None:
    """Return file, line and function of the user's code that an equation was traced in; None where JAX kept none."""
    frame: Any = source_info_util.user_frame(eqn.source_info.traceback)
    return None if frame is None else (frame.file_name, frame.start_line, frame.function_name)
