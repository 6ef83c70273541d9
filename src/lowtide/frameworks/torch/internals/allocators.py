"""Allocators: peaks of a call, and a replacement of the CPU allocator."""

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.arena.allocator import NativeAllocator, native_allocator
from lowtide.frameworks.torch.internals.releases import ALLOCATORS

_FUNCTIONS = (
    "_ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh",
    "_ZN3c1025profiledCPUMemoryReporterEv",
    "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm",
    "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv",
)
"""c10::SetCPUAllocator, and the profiler's hooks."""


@dataclass(frozen=True, slots=True)
class AllocatorStart:
    """A device's allocated bytes at one moment, without the program's inputs, and its peak so far."""

    device: torch.device
    allocated_bytes: int
    peak_bytes: int

    @classmethod
    def of(cls, inputs: Sequence[Any]) -> "AllocatorStart | None":
        tensors = [each for each in inputs if isinstance(each, torch.Tensor) and each.device.type == "cuda"]
        if not tensors:
            return None
        device = tensors[0].device
        own = sum(each.nbytes for each in tensors if not isinstance(each, torch.nn.Parameter))
        return cls(device, torch.cuda.memory_allocated(device) - own, torch.cuda.max_memory_allocated(device))

    def peak_since(self) -> int | None:
        """Return the peak of bytes allocated since; None if an older peak is higher."""
        peak = torch.cuda.max_memory_allocated(self.device)
        return peak - self.allocated_bytes if peak > self.peak_bytes else None


@cache
def replace_cpu_allocator() -> NativeAllocator:
    """Replace this process's CPU allocator for good. Raises UnsupportedError if impossible."""
    allocator = native_allocator()
    if not torch.__version__.startswith(ALLOCATORS):
        raise UnsupportedError(
            f"cannot replace the CPU allocator of PyTorch {torch.__version__}; arenas need {'x or '.join(ALLOCATORS)}x"
        )
    functions = [ctypes.cast(function, ctypes.c_void_p) for function in _find_functions()]
    allocator.library.lowtide_register_with_torch(*functions)
    return allocator


def _find_functions() -> list[ctypes.c_void_p]:
    folder = Path(torch.__file__).parent / "lib"
    path = next((found for name in ("libc10.so", "libc10.dylib") if (found := folder / name).is_file()), None)
    try:
        return [getattr(ctypes.CDLL(str(path)), name) for name in _FUNCTIONS]
    except (AttributeError, OSError) as error:
        raise UnsupportedError(
            f"cannot replace the CPU allocator of this build of PyTorch {torch.__version__}, which an arena needs"
        ) from error


def cpu_peak_of(call: Callable[[], Any]) -> tuple[int, Any]:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler prints to stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        result = call()
    recorded: Any = profiler.profiler
    events = [
        (event.start_ns(), event.nbytes())
        for event in recorded.kineto_results.events()
        if event.name() == "[memory]" and event.device_type().name == "CPU"
    ]
    live = peak = 0
    for _, size in sorted(events, key=lambda event: event[0]):
        live += size
        peak = max(peak, live)
    return peak, result


def cuda_peak_of(call: Callable[[], Any], device: torch.device) -> tuple[int, Any]:
    """Return a call's peak beyond earlier bytes, and its result."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before, result
