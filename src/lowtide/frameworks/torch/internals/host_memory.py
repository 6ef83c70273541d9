"""Host memory for a program's tensors: pinned for CUDA, a stand-in for the CPU."""

import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from lowtide.core.errors import UsageError
from lowtide.frameworks.torch.internals.fully_sharded import follow_moves, reshard
from lowtide.frameworks.torch.internals.padded_parts import follow_padded, part_of
from lowtide.frameworks.torch.internals.tensors import memory_of, storage_over

HOST = torch.device("cpu")


@dataclass(slots=True)
class CpuHost:
    """Bytes on the host of CPU programs, now and at the peak since `restart`."""

    live_bytes: int = 0
    peak_bytes: int = 0
    _addresses: set[int] = field(default_factory=set[int])
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        memory = np.empty(memory_of(tensor).nbytes, np.uint8)
        address = memory.ctypes.data
        self._count(memory.nbytes)
        self._addresses.add(address)
        weakref.finalize(memory, self._forget, address, memory.nbytes)  # the storage below holds the last reference
        storage = storage_over(memory)
        return torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.shape, tensor.stride())

    def holds(self, tensor: torch.Tensor) -> bool:
        return bool(self._addresses) and tensor.untyped_storage().data_ptr() in self._addresses

    def restart(self) -> None:
        self.peak_bytes = self.live_bytes

    def _forget(self, address: int, size: int) -> None:
        self._addresses.discard(address)
        self._count(-size)

    def _count(self, more: int) -> None:
        with self._lock:
            self.live_bytes += more
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)


cpu_host = CpuHost()


def empty_on_host(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type != "cuda":
        return cpu_host.empty_like(tensor)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, pin_memory=True)


def is_on_host(tensor: torch.Tensor, device: torch.device) -> bool:
    return cpu_host.holds(tensor) if device.type != "cuda" else tensor.device.type == "cpu" and tensor.is_pinned()


_homes: Any = WeakIdKeyDictionary()
"""Devices of tensors moved to their host."""


def may_be_on_host() -> bool:
    """Return whether a tensor moved to its host still exists."""
    return bool(_homes)


def home_of(tensor: torch.Tensor) -> torch.device:
    """Return a tensor's device, also while it is on that device's host."""
    home = _homes.get(tensor)
    return home if home is not None and is_on_host(tensor, home) else tensor.device


def move(tensor: torch.Tensor, device: torch.device, *, to_host: bool) -> bool:
    """Move a tensor's storage; the tensor object stays. Return False if it was there."""
    if to_host == is_on_host(tensor, device) and (to_host or tensor.device == device):
        return False
    with torch.no_grad():
        if to_host:
            made = empty_on_host(tensor, device)
        else:
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
        memory_of(made).copy_(memory_of(tensor))
    tensor.data = made
    if to_host:
        _homes[tensor] = device
    return True


def move_part(tensor: torch.Tensor, device: torch.device, *, to_host: bool, owner: torch.Tensor | None = None) -> bool:
    """Move this rank's part of a DTensor, or another tensor, as `move` does; see `part_of` for the `owner`."""
    part = part_of(tensor, owner)
    has_moved = move(part, device, to_host=to_host)
    if has_moved:
        follow_padded(tensor, part)
    return has_moved


def to_host(module: nn.Module, device: torch.device | str = "cuda") -> None:
    """Move a module's parameters and buffers to the host of a device, in pinned memory for CUDA.

    The module is then captured and planned for this device, without having to fit on it. Make an optimizer after this
    call. Raises UsageError without such a device.
    """
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"PyTorch finds no device {device!r}; give a device of this machine")
    home = torch.empty(0, device=device).device  # with its number
    reshard([module])
    for tensor in (*module.parameters(), *module.buffers()):
        move_part(tensor, home, to_host=True)
    follow_moves([module])
