"""The runtime state of programs: random state, autocast, modes, boxed calls, module tensors, device properties."""
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
    """A mode in which `__torch_dispatch__` receives every call of an operator."""

    def __init__(self) -> None:
        super().__init__()


def random_state() -> torch.Tensor:
    """Return the state of the default CPU generator."""
    return torch.random.default_generator.get_state()


def set_random_state(state: torch.Tensor) -> None:
    """Set the state of the default CPU generator."""
    torch.random.default_generator.set_state(state)


@contextmanager
def random_state_functions(get: Any, set_: Any) -> Generator[None]:
    """Replace `torch.get_rng_state` and `torch.set_rng_state` in this context."""
    before = torch.get_rng_state, torch.set_rng_state
    torch.get_rng_state, torch.set_rng_state = get, set_
    try:
        yield
    finally:
        torch.get_rng_state, torch.set_rng_state = before


def kept_random_state(devices: Iterable[torch.device] = ()) -> AbstractContextManager[None]:
    """Restore the states of the default CPU generator and of CUDA devices at the end of this context."""
    return torch.random.fork_rng(devices=[device for device in devices if device.type == "cuda"])


def without_autocast() -> AbstractContextManager[None]:
    """Disable autocast; a captured graph already contains its casts."""
    return torch._C._DisableAutocast()


def without_modes() -> AbstractContextManager[Any]:
    """Disable all dispatch modes, including tracing."""
    return _disable_current_modes()


def differentiate(loss: torch.Tensor) -> None:
    """Run the backward pass."""
    loss.backward()


def box_inputs(graph: Graph) -> None:
    """Make the code of a graph receive its inputs as one list, which it empties.

    The caller then holds no reference, so that inputs are freed at their last use.
    """
    graph.set_codegen(_BoxedCodeGen())


def marked_boxed(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return a function of one list, marked as boxed for PyTorch's runtime."""

    def call(inputs: list[Any]) -> Any:
        return run(inputs)

    call._boxed_call = True
    return call


def reparametrized(module: nn.Module, tensors: dict[str, torch.Tensor]) -> AbstractContextManager[None]:
    """Replace a module's tensors, by name and including tied ones, in this context."""
    return _reparametrize_module(module, tensors, tie_weights=True)


def name_in(outer: nn.Module, module: nn.Module) -> str | None:
    """Return the qualified name of a module in another one, or None if it is not part of it."""
    return next((name for name, inner in outer.named_modules() if inner is module), None)


def memory_clock(device: str) -> tuple[int, int]:
    """Return a CUDA device's memory clock rate in kHz and its bus width in bits."""
    properties = torch.cuda.get_device_properties(device)
    return properties.memory_clock_rate, properties.memory_bus_width


@cache
def multiplies_tiles() -> bool:
    """Return whether the processor has AMX tiles, for which PyTorch packs the operands of products."""
    return torch.cpu._is_amx_tile_supported()


def compute_capability(device: torch.device) -> int | None:
    """Return the major compute capability of a CUDA device, or None without a GPU."""
    return torch.cuda.get_device_capability(device)[0] if torch.cuda.is_available() else None
