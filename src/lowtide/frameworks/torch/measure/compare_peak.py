"""Warn of measured peaks above their predictions."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

from lowtide.core.units import format_bytes, percent
from lowtide.engine.graph import Graph
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.allocators import AllocatorStart
from lowtide.frameworks.torch.internals.tensors import bytes_held_by

_MOST_ABOVE = 0.02
_LEAST_BYTES = 2**16
"""Scalars and small library buffers are not modeled."""


def warn_of_higher_peak(graph: Graph, measured_bytes: int, predicted_bytes: int, stacklevel: int = 2) -> None:
    """Warn of a peak more than 2 % and 64 KiB above the prediction."""
    above = measured_bytes - predicted_bytes
    if above <= max(_MOST_ABOVE * predicted_bytes, _LEAST_BYTES):
        return
    why = f"not modeled: {graph.unmodeled[0]}" if graph.unmodeled else "please report the program"
    message = (
        f"lowtide: {graph.name!r} takes {format_bytes(measured_bytes)}, {percent(above / max(predicted_bytes, 1))} "
        f"above the prediction of {format_bytes(predicted_bytes)}; {why}"
    )
    warnings.warn(message, stacklevel=stacklevel + 1)


def compared_on_cuda(
    call: Callable[[], Any], batch: Any, graph: Graph, predicted_bytes: int, stacklevel: int = 2
) -> Any:
    """Call a step; warn if its GPU peak is above the prediction.

    The allocator's statistics are not reset, so only peaks above all earlier ones are known.
    """
    tensors = [tensor for tensor in pytree.tensors_in(batch) if tensor.device.type == "cuda"]
    if not tensors:
        return call()
    device = tensors[0].device
    without_batch = torch.cuda.memory_allocated(device) - bytes_held_by(tensors)
    start = AllocatorStart(device, without_batch, torch.cuda.max_memory_allocated(device))
    result = call()
    peak = start.peak_since()
    if peak is not None:
        warn_of_higher_peak(graph, peak, predicted_bytes, stacklevel + 1)
    return result
