"""Runtime state: random numbers, autocast, modes, boxed calls, module tensors, devices."""
# pyright: reportFunctionMemberAccess=false, reportPrivateImportUsage=false, reportPrivateUsage=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.fx import Graph
from torch.fx.graph import _BoxedCodeGen
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


class DispatchMode(TorchDispatchMode):
    """A mode that receives every call of an operator."""

    def __init__(self) -> None:
        super().__init__()


@contextmanager
def random_state_functions(get: Any, set_: Any) -> Generator[None]:
    before = torch.get_rng_state, torch.set_rng_state
    torch.get_rng_state, torch.set_rng_state = get, set_
    try:
        yield
    finally:
        torch.get_rng_state, torch.set_rng_state = before


def kept_random_state(devices: Iterable[torch.device] = ()) -> AbstractContextManager[None]:
    return torch.random.fork_rng(devices=[device for device in devices if device.type == "cuda"])


def without_autocast() -> AbstractContextManager[None]:
    """Disable autocast; captured graphs contain their casts."""
    return torch._C._DisableAutocast()


@contextmanager
def autocast_cache(enabled: bool) -> Generator[None]:
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(enabled)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def without_modes() -> AbstractContextManager[Any]:
    return _disable_current_modes()


def box_inputs(graph: Graph) -> None:
    """Make a graph take its inputs as one list, which it empties to free them early."""
    graph.set_codegen(_BoxedCodeGen())


def marked_boxed(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def call(inputs: list[Any]) -> Any:
        return run(inputs)

    call._boxed_call = True
    return call


def reparametrized(module: nn.Module, tensors: dict[str, torch.Tensor]) -> AbstractContextManager[None]:
    """Replace a module's tensors, including tied ones, in this context.

    They are put back in reverse order, because an inner module with two names is replaced twice.
    """
    return _reparametrize_module(module, tensors, tie_weights=True, stack_weights=True)


def memory_clock(device: str) -> tuple[int, int]:
    """Return a CUDA device's memory clock in kHz and bus width in bits."""
    properties = torch.cuda.get_device_properties(device)
    return properties.memory_clock_rate, properties.memory_bus_width


def gpu_kind(device: str) -> tuple[str, int, int]:
    """Return a CUDA device's name, ten times its compute capability (90 for 9.0), and its memory in bytes."""
    properties = torch.cuda.get_device_properties(device)
    return properties.name, 10 * properties.major + properties.minor, properties.total_memory


@cache
def onednn_computes(dtype: torch.dtype) -> bool:
    """Return whether PyTorch uses oneDNN for products and convolutions of a dtype here."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if dtype == torch.float16:
        return torch.ops.mkldnn._is_mkldnn_fp16_supported()
    return dtype == torch.float32


@cache
def multiplies_bfloat16() -> bool:
    """Return whether the processor multiplies bfloat16; others add up products in float32."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


@cache
def multiplies_tiles() -> bool:
    """Return whether the processor multiplies AMX tiles."""
    return torch.cpu._is_amx_tile_supported()
