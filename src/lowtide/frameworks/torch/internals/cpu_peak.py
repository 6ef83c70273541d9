"""The peak of CPU memory during a call, from the allocator's events in PyTorch's profiler."""

import os
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile


def cpu_peak_of(call: Callable[[], Any]) -> tuple[int, Any]:
    """Return the peak of bytes allocated on the CPU during a call, and its result."""
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
