"""Peaks of memory during a call: by the profiler's events on a CPU, by the caching allocator on a GPU."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def cpu_peak_of(call: Callable[[], Any]) -> tuple[int, Any]:
    """Return the peak of bytes allocated on the CPU during a call, and its result."""
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
    """Return the peak of bytes allocated on a GPU during a call beyond those before it, and its result."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before, result
