"""How long a call of a kernel takes on its device."""

import statistics
import time
from collections.abc import Callable

import torch

_FEWEST, _MOST = 3, 21
_ENOUGH_SECONDS = 0.03
"""What the timed calls of one kernel take together, as far as the fewest and the most calls allow."""


def time_call(call: Callable[[], object], device: torch.device) -> float:
    """Return the median seconds of some calls after two that warm up, by the clock of the device where it has one.

    On CUDA a call is timed from its launch to the end of its kernels, the device idle before; its result is dropped.
    """
    once = _timer(device)
    once(call)
    first = once(call)
    calls = min(_MOST, max(_FEWEST, int(_ENOUGH_SECONDS / max(first, 1e-9))))
    return statistics.median(once(call) for _ in range(calls))


def _timer(device: torch.device) -> Callable[[Callable[[], object]], float]:
    return _on_cuda if device.type == "cuda" else _on_host


def _on_host(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _on_cuda(call: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000
