"""Times of calls with and without a plan, in turns."""

import time
from collections.abc import Callable
from typing import Any

import torch

from lowtide.engine.planning.measured import StepTimes
from lowtide.frameworks.torch.measure.measure_captured import check_real
from lowtide.frameworks.torch.reading.captured import Captured

TIMED_CALLS = 7
_LEAST_CALLS = 3
_ENOUGH_SECONDS = 5.0
"""After this time, only the least number of calls is timed."""


def step_times(
    captured: Captured, planned: Callable[..., Any], restore: Callable[[], None], timed_calls: int = TIMED_CALLS
) -> StepTimes:
    """Return the times of the user's own call and of a planned one, on the example inputs.

    Calls alternate, so that a busy machine slows both; `restore` runs after each. Both must have run before, since
    first calls set up libraries.
    """
    args, kwargs = captured.example_args, captured.example_kwargs
    inputs = check_real(args, kwargs)
    device = inputs[0].device if inputs else torch.device("cpu")
    times: tuple[list[float], list[float]] = [], []
    started = time.perf_counter()
    for turn in range(timed_calls):
        if turn >= _LEAST_CALLS and time.perf_counter() - started > _ENOUGH_SECONDS:
            break
        for program, seconds in zip((captured.run_original, planned), times, strict=True):
            seconds.append(seconds_of(lambda program=program: program(*args, **kwargs), device))
            restore()
    return StepTimes.of(*times)


def seconds_of(call: Callable[[], Any], device: torch.device) -> float:
    """Return the seconds of a call until its kernels end, without freeing the result."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    result = call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - started
    del result
    return seconds
