"""Peaks of device and host memory during a call."""

import gc
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from lowtide.frameworks.torch.emit.transfers.ops import cpu_host


def peak_of_call(call: Callable[[], Any], device: torch.device) -> tuple[int, Any]:
    """Return the peak of bytes allocated during a call, and its result.

    Allocations inside kernels count. On CUDA, the caching allocator reports the peak.
    """
    gc.collect()
    if device.type == "cuda":
        return _peak_on_cuda(call, device)
    return _peak_on_cpu(call)


def _peak_on_cuda(call: Callable[[], Any], device: torch.device) -> tuple[int, Any]:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before, result


def _peak_on_cpu(call: Callable[[], Any]) -> tuple[int, Any]:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler prints to stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
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


def host_peak_of_call(call: Callable[[], Any], device: torch.device) -> tuple[int, Any]:
    """Return the peak of bytes copied to the host during a call, and its result.

    On a GPU this counts the blocks of the pinned-memory allocator, which are powers of two.
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
