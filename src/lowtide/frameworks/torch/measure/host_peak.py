"""The real peak of what copies hold on the host during a call."""

from collections.abc import Callable
from typing import Any

import torch

from lowtide.frameworks.torch.emit.transfers.cpu_host import cpu_host


def host_peak_of_call(call: Callable[[], Any], device: torch.device) -> tuple[int, Any]:
    """Run a call and return the most bytes that copies of a device's memory held on the host, and its result.

    What was held before is left out. On a GPU the figure is that of the allocator of pinned memory: blocks of powers of
    two, whoever asked for them.
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
