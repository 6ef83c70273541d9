"""What ops take on this machine: every op of a captured program, run alone on tensors of its form."""

import platform
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
from lowtide.frameworks.torch.measure.stand_ins import form_of, stand_in
from lowtide.frameworks.torch.measure.stopwatch import time_call
from lowtide.frameworks.torch.reading.captured import attribute
from lowtide.frameworks.torch.reading.costs import seconds_of
from lowtide.frameworks.torch.reading.effects import is_random, keeps_order
from lowtide.frameworks.torch.reading.lowering import Lowered, lower_callee
from lowtide.frameworks.torch.reading.read import Reading, kind_of


def measure_prices(reading: Reading) -> Prices:
    """Return what every op takes on the device it was captured for: the median of some runs on random tensors.

    Ops of one kind and form are measured once. An op that calls graphs takes what one run of them takes. Collectives,
    checks, what is opaque, and what fails on random tensors keep the eager estimate and are named in `estimated`.
    The program's own tensors and random state are left alone. Raises UnsupportedError where no op can be run here.
    """
    captured, lowered = reading.captured, reading.lowered
    devices = dict.fromkeys(buffer.device for buffer in lowered.buffers if buffer.device is not None)
    with torch.set_grad_enabled(captured.with_backward), without_autocast(), kept_random_state(devices):
        prices = _Measurement(", ".join(map(describe, devices)) or "cpu").prices(captured.graph_module, lowered)
    if lowered.ops and len(prices.estimated) == len(lowered.ops):
        raise UnsupportedError(
            f"no op of '{captured.name}' can be run on {prices.device}; measure where the program itself runs"
        )
    return prices


def describe(device: torch.device) -> str:
    """Return a device in words."""
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"{platform.machine()} CPU with {torch.get_num_threads()} threads"
    return str(device)


class _Measurement:
    """Measures one program; what has been measured once is remembered by its form."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._known: dict[tuple[str, str], float | None] = {}

    def prices(self, module: GraphModule, lowered: Lowered) -> Prices:
        """Return the prices of a graph's ops."""
        callees: dict[str, Prices] = {}
        seconds: list[float] = []
        estimated: list[str] = []
        for op in lowered.ops:
            found = self._called(module, op.node, lowered, callees) or self._alone(module, op.node)
            if found is None:
                estimated.append(op.node.name)
            seconds.append(seconds_of(op.node) if found is None else found)
        return Prices(
            profile="measured",
            seconds=np.asarray(seconds, np.float64),
            callees=callees,
            device=self._device,
            estimated=tuple(estimated),
        )

    def _called(self, module: GraphModule, node: Node, lowered: Lowered, callees: dict[str, Prices]) -> float | None:
        """Return what one run of the graphs that a node calls takes; None where it calls none."""
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
        """Return what a node takes alone; None where it cannot be run so."""
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
    """Return what a call takes on stand-ins of what it is given; None where it fails."""
    try:
        args, kwargs = stand_in(given)
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if any(tensor.is_meta for tensor in tensors):
            return None
        device = tensors[0].device if tensors else torch.device("cpu")
        return time_call(lambda: target(*args, **kwargs), device)
    except (RuntimeError, ValueError, TypeError, ArithmeticError, LookupError, NotImplementedError, AssertionError):
        return None
