"""PyTorch's allocator of CPU tensors, replaced by the one that can place blocks at planned addresses."""
# pyright: reportUnknownMemberType=false

import ctypes
from functools import cache
from pathlib import Path

import torch

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.arena.allocator import NativeAllocator, native_allocator

_VERSIONS = ("2.12.", "2.13.")
"""Of these, `native/torch/registration.cpp` declares the classes that pass between PyTorch and an allocator."""
_FUNCTIONS = (
    "_ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh",
    "_ZN3c1025profiledCPUMemoryReporterEv",
    "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm",
    "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv",
)
"""c10::SetCPUAllocator, and what tells the profiler of allocations."""


@cache
def replace_cpu_allocator() -> NativeAllocator:
    """Let all CPU tensors of this process be allocated by the native allocator from now on, and return it.

    Outside of runs it allocates as the C library does, and the profiler goes on counting. PyTorch has no way back.
    Raises UnsupportedError for a PyTorch whose allocator cannot be replaced.
    """
    allocator = native_allocator()
    if not torch.__version__.startswith(_VERSIONS):
        raise UnsupportedError(
            f"the CPU allocator of PyTorch {torch.__version__} is not known; an arena needs {'x or '.join(_VERSIONS)}x"
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
            f"PyTorch {torch.__version__} here gives no way to replace its CPU allocator, which an arena needs"
        ) from error
