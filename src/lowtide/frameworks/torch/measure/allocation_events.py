"""Peaks of device and host memory during a call."""

import gc
from collections.abc import Callable
from typing import Any

import torch

from lowtide.frameworks.torch.internals.allocators import cpu_peak_of, cuda_peak_of
from lowtide.frameworks.torch.internals.host_memory import cpu_host


def peak_of_call(call: Callable[[], Any], device: torch.device) -> tuple[int, Any]:
    """Return the peak of bytes allocated in a call, kernels included, and its result."""
    gc.collect()
    if device.type == "cuda":
        return cuda_peak_of(call, device)
    return cpu_peak_of(call)


def host_peak_of_call(call: Callable[[], Any], device: torch.device) -> tuple[int, Any]:
    """Return the peak of bytes copied to the host in a call, and its result.

    With a GPU, pinned blocks count, which are powers of two.
    """
    if device.type != "cuda":
        cpu_host.restart()
        before = cpu_host.live_bytes
        result = call()
        return cpu_host.peak_bytes - before, result
    torch.cuda.reset_peak_host_memory_stats()
    before = torch.cuda.host_memory_stats().get("active_bytes.current", 0)
    result = call()
    return torch.cuda.host_memory_stats().get("active_bytes.peak", 0) - before, result
