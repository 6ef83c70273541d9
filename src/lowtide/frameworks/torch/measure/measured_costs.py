"""Measure op costs: run each op alone on random tensors."""

import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node

from lowtide.core.errors import UnsupportedError
from lowtide.engine.costs import Prices
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import map_nodes, value_of
from lowtide.frameworks.torch.internals.operators import higher_order_of
from lowtide.frameworks.torch.internals.runtime import kept_random_state, without_autocast
from lowtide.frameworks.torch.reading.captured import attribute
from lowtide.frameworks.torch.reading.costs import seconds_of
from lowtide.frameworks.torch.reading.effects import is_random, keeps_order
from lowtide.frameworks.torch.reading.lowering import Lowered, lower_callee
from lowtide.frameworks.torch.reading.read import Reading, kind_of
from lowtide.frameworks.torch.reading.workspaces import form_of, stand_in


def measure_prices(reading: Reading) -> Prices:
    """Return seconds per op on the captured device: the median of several runs on random tensors.

    Equal ops are measured once. Collectives, checks, opaque and failing ops keep the eager estimate, listed in
    `estimated`. Raises UnsupportedError if no op can run here.
    """
    captured, lowered = reading.captured, reading.lowered
    devices = dict.fromkeys(buffer.device for buffer in lowered.buffers if buffer.device is not None)
    with torch.set_grad_enabled(captured.with_backward), without_autocast(), kept_random_state(devices):
        prices = _Measurement(", ".join(map(describe, devices)) or "cpu").prices(captured.graph_module, lowered)
    if lowered.ops and len(prices.estimated) == len(lowered.ops):
        where = f"'{captured.name}' can be run on {prices.device}"
        raise UnsupportedError(f"no op of {where}; measure on the program's own device")
    return prices


def describe(device: torch.device) -> str:
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"{platform.machine()} CPU with {torch.get_num_threads()} threads"
    return str(device)


class _Measurement:
    def __init__(self, device: str) -> None:
        self._device = device
        self._known: dict[tuple[str, str], float | None] = {}

    def prices(self, module: GraphModule, lowered: Lowered) -> Prices:
        callees: dict[str, Prices] = {}
        seconds: list[float] = []
        estimated: list[str] = []
        for op in lowered.ops:
            found = [self._called(module, node, lowered, callees) or self._alone(module, node) for node in op.kernels]
            known = [each for each in found if each is not None]
            if len(known) < len(found):
                estimated.append(op.node.name)
            seconds.append(sum(known if len(known) == len(found) else map(seconds_of, op.kernels)))
        return Prices(
            profile="measured",
            seconds=np.asarray(seconds, np.float64),
            callees=callees,
            device=self._device,
            estimated=tuple(estimated),
        )

    def _called(self, module: GraphModule, node: Node, lowered: Lowered, callees: dict[str, Prices]) -> float | None:
        if higher_order_of(node.target) is None:
            return None
        found: list[float] = []
        for argument in node.all_input_nodes:
            body = getattr(module, str(argument.target), None) if argument.op == "get_attr" else None
            if isinstance(body, GraphModule):
                prices = self.prices(body, lower_callee(lowered, module, str(argument.target)))
                callees |= {**prices.callees, str(argument.target): prices}
                found.append(float(prices.seconds.sum()))
        if not found:
            return None
        return max(found) if kind_of(node) == "conditional" else sum(found)

    def _alone(self, module: GraphModule, node: Node) -> float | None:
        target: Any = node.target
        if higher_order_of(target) is not None or (keeps_order(node) and not is_random(node)):
            return None
        given = map_nodes(
            (node.args, dict(node.kwargs)),
            lambda other: attribute(module, str(other.target)) if other.op == "get_attr" else value_of(other),
        )
        key = str(target), form_of(given)
        if key not in self._known:
            self._known[key] = _seconds(target, given)
        return self._known[key]


def _seconds(target: Any, given: Any) -> float | None:
    try:
        args, kwargs = stand_in(given)
        tensors = pytree.tensors_in((args, kwargs))
        if any(tensor.is_meta for tensor in tensors):
            return None
        device = tensors[0].device if tensors else torch.device("cpu")
        return time_call(lambda: target(*args, **kwargs), device)
    except (RuntimeError, ValueError, TypeError, ArithmeticError, LookupError, NotImplementedError, AssertionError):
        return None


_FEWEST, _MOST = 3, 21
_ENOUGH_SECONDS = 0.03


def time_call(call: Callable[[], object], device: torch.device) -> float:
    """Return the median seconds of calls after two warm-up calls; on CUDA, until the kernels end."""
    once = _on_cuda if device.type == "cuda" else _on_host
    once(call)
    first = once(call)
    calls = min(_MOST, max(_FEWEST, int(_ENOUGH_SECONDS / max(first, 1e-9))))
    return statistics.median(once(call) for _ in range(calls))


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
