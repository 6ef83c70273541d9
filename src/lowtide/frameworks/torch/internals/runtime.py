"""What programs run under: random state, casts, modes, autograd, the device."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportPrivateImportUsage=false
# pyright: reportUnknownLambdaType=false

from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


def random_state() -> torch.Tensor:
    """Return the state of the default CPU generator."""
    return torch.random.default_generator.get_state()


def set_random_state(state: torch.Tensor) -> None:
    """Set the state of the default CPU generator."""
    torch.random.default_generator.set_state(state)


@contextmanager
def random_state_functions(get: Any, set_: Any) -> Generator[None]:
    """Put other functions in place of `torch.get_rng_state` and `torch.set_rng_state` for a while."""
    kept = torch.get_rng_state, torch.set_rng_state
    torch.get_rng_state, torch.set_rng_state = get, set_
    try:
        yield
    finally:
        torch.get_rng_state, torch.set_rng_state = kept


def kept_random_state(devices: Iterable[torch.device] = ()) -> AbstractContextManager[None]:
    """Put the states of the default CPU generator and of those of CUDA devices back at the end."""
    return torch.random.fork_rng(devices=[device for device in devices if device.type == "cuda"])


def without_autocast() -> AbstractContextManager[None]:
    """Switch automatic casts off; a captured graph holds its casts as ops."""
    return torch._C._DisableAutocast()


def without_modes() -> AbstractContextManager[Any]:
    """Run as if nothing were being traced."""
    return _disable_current_modes()


def differentiate(loss: torch.Tensor) -> None:
    """Run the backward pass."""
    loss.backward()


def memory_clock(device: str) -> tuple[int, int]:
    """Return the clock rate of a CUDA device's memory in kHz and the width of its bus in bits."""
    properties = torch.cuda.get_device_properties(device)
    return properties.memory_clock_rate, properties.memory_bus_width


@cache
def multiplies_tiles() -> bool:
    """Tell whether the processor multiplies tiles of bfloat16, for which PyTorch reorders what it multiplies often."""
    return torch.cpu._is_amx_tile_supported()


def compute_capability(device: torch.device) -> int | None:
    """Return the major compute capability of a CUDA device; None where no GPU is there to be asked."""
    return torch.cuda.get_device_capability(device)[0] if torch.cuda.is_available() else None


class DispatchMode(TorchDispatchMode):
    """While it is on, its `__torch_dispatch__` gets every call of an operator."""

    def __init__(self) -> None:
        super().__init__()
