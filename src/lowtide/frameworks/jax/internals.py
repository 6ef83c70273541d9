"""Untyped and private names of JAX; a new version is ported here."""

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jax as typed_jax
from jax import export as jax_export
from jax._src import source_info_util
from jax._src.interpreters import partial_eval
from jax.experimental import topologies as jax_topologies
from jax.extend import core as extend_core

from lowtide.core.environment import environment_with
from lowtide.core.errors import UnsupportedError, one_line

jax: Any = typed_jax
export: Any = jax_export
jaxpr_as_fun: Any = extend_core.jaxpr_as_fun
topologies: Any = jax_topologies
NO_HOST_SPACE = (
    "this device has no separate host space: on the CPU, pinned_host is the memory of the device, and XLA drops copies"
)
_SKIP_CHECK = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"


def without_unused(closed: Any) -> Any:
    """Return a jaxpr without equations, stacks of scans and results of branches that nothing reads."""
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return extend_core.ClosedJaxpr(jaxpr, closed.consts)


def has_host_space() -> bool:
    device = jax.devices()[0]
    kinds = {memory.kind for memory in device.addressable_memories()}
    return device.platform != "cpu" and "pinned_host" in kinds


def keeps_barriers(platform: str) -> bool:
    """Return whether XLA keeps optimization barriers until it orders kernels. On CPUs it does from JAX 0.11 on."""
    return platform != "cpu" or jax.__version_info__ >= (0, 11)


def waits_for_loops(platform: str) -> bool:
    """Return whether a kernel queue waits for the host at every loop, as on GPUs, so that holds take time."""
    return platform != "cpu"


def absent_gpu(target: str) -> Any:
    """Return a CUDA device to compile for, from a description that XLA reads.

    JAX's plugin for CUDA checks for a driver when it is loaded, which is turned off meanwhile. Raises UnsupportedError
    without the plugin, or if it refuses the description.
    """
    jax.devices()  # first, so that JAX does not look for a device of a plugin that is loaded here
    describe = partial(topologies.get_topology_desc, "absent", platform="cuda", target_config=target, topology="1x1x1")
    try:
        try:
            topology = describe()
        except NotImplementedError:
            _load_cuda_plugin()
            topology = describe()
    except RuntimeError as error:
        raise UnsupportedError(f"JAX's plugin for CUDA cannot compile for this device: {one_line(error)}") from error
    return topology.devices[0]


def _load_cuda_plugin() -> None:
    names = (f"jax_plugins.xla_cuda{major}" for major in (13, 12))
    name = next((each for each in names if find_spec("jax_plugins") and find_spec(each)), None)
    if name is None:
        package = f"jax-cuda12-plugin=={jax.__version__}"
        raise UnsupportedError(f"compiling for an absent GPU needs JAX's plugin for CUDA: pip install {package}")
    with environment_with(_SKIP_CHECK, "1"):
        import_module(name).initialize()


def is_random_key(dtype: Any) -> bool:
    return bool(jax.numpy.issubdtype(dtype, jax.dtypes.prng_key))


def key_like(dtype: Any, seed: int) -> Any:
    """Return a random key of a dtype. Raises UnsupportedError if no implementation of JAX makes such keys."""
    for implementation in ("threefry2x32", "rbg", "unsafe_rbg"):
        key = jax.random.key(seed, impl=implementation)
        if key.dtype == dtype:
            return key
    raise UnsupportedError(f"random keys of type {dtype} cannot be made up; give keys as example arguments")


def is_floating(dtype: Any) -> bool:
    return bool(jax.numpy.issubdtype(dtype, jax.numpy.floating))


def is_differentiable(dtype: Any) -> bool:
    """Return whether a dtype is of real or complex floating-point numbers."""
    return bool(jax.numpy.issubdtype(dtype, jax.numpy.inexact))


def is_unspecified(sharding: Any) -> bool:
    return type(sharding).__name__ == "UnspecifiedValue"


def varying_axes(value: Any) -> frozenset[Any]:
    return frozenset(getattr(getattr(jax.typeof(value), "mat", None), "varying", ()))


def struct_like(aval: Any) -> Any:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def user_frame(eqn: Any) -> tuple[str, int, str] | None:
    frame: Any = source_info_util.user_frame(eqn.source_info.traceback)
    return None if frame is None else (frame.file_name, frame.start_line, frame.function_name)


def checkpoint_body(eqn: Any) -> Any:
    """Return the jaxpr of an equation made by `jax.checkpoint` (with `jax_remat3`, a `call_hi_primitive`)."""
    if eqn.primitive.name in ("remat2", "checkpoint"):
        return eqn.params["jaxpr"]
    primitive = eqn.params.get("_prim")
    return primitive.jaxpr if type(primitive).__name__ == "RematTraced" else None


def checkpoint_barriers(eqns: Sequence[Any]) -> set[Any]:
    """Return the results of the barriers that `jax_remat3` puts before checkpointed bodies."""
    operands = {id(var) for eqn in eqns if checkpoint_body(eqn) is not None for var in eqn.invars}
    barriers = [eqn.outvars for eqn in eqns if eqn.primitive.name == "optimization_barrier"]
    return {var for results in barriers if not operands.isdisjoint(map(id, results)) for var in results}


def scan_counts(params: Any) -> tuple[int, int]:
    """Return how many operands of a scan are constants, and how many are states; then come the slices."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    constants, states, _ = params["ft_in"].unpack()  # since JAX 0.12
    return len(list(constants)), len(list(states))
