"""Ops that copy state and parameters to the device, and back after their update."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx import Node

from lowtide.core.index_spaces import BufferId
from lowtide.frameworks.torch.emit.host_updates import OPERAND_TO_HOST, PARAMETER_TO_DEVICE, UPDATE_ON_HOST, note_copy
from lowtide.frameworks.torch.emit.transfers import WAIT_FOR_COPY, copy_to_device, copy_to_pinned, event_of, like
from lowtide.frameworks.torch.internals.operators import define_operator
from lowtide.frameworks.torch.internals.tensors import memory_of, version_of
from lowtide.frameworks.torch.reading.lowering import LoweredOp

_on_device: dict[int, tuple[torch.Tensor, torch.Tensor, int]] = {}
"""By address of a state or rows on the host: these, the device copy, and its version when made."""


def _state_to_device(state: torch.Tensor, device: torch.device) -> torch.Tensor:
    made = copy_to_device(state, device)
    _on_device[state.data_ptr()] = state, made, version_of(made)
    return made


def _state_to_host(state: torch.Tensor, source: torch.Tensor) -> None:
    if source.device.type == "cuda":
        copy_to_pinned(source, state)
    else:
        memory_of(state).copy_(memory_of(source))
    _on_device.pop(state.data_ptr(), None)


def _parameter_from_host(parameter: torch.Tensor, device: torch.device) -> torch.Tensor:
    made = copy_to_device(parameter, device)
    note_copy(parameter, event_of(made))
    return made


def _fake_copy(state: torch.Tensor, source: torch.Tensor) -> None:
    pass


STATE_TO_DEVICE = define_operator("state_to_device(Tensor state, Device device) -> Tensor", _state_to_device, like)
PARAMETER_FROM_HOST = define_operator(
    "parameter_from_host(Tensor parameter, Device device) -> Tensor", _parameter_from_host, like
)
GRADIENT_FROM_HOST = define_operator(
    "gradient_from_host(Tensor gradient, Device device) -> Tensor", copy_to_device, like
)
STATE_TO_HOST = define_operator("state_to_host(Tensor(a!) state, Tensor source) -> ()", _state_to_host, _fake_copy)


def finish_copies(states: Sequence[torch.Tensor]) -> None:
    """Complete all copies of states, and copy states that an exception left changed on the device."""
    if states and torch.cuda.is_available():
        torch.cuda.synchronize()
    for state in states if _on_device else ():
        begin = state.data_ptr()
        for address in [each for each in _on_device if begin <= each < begin + state.nbytes]:
            rows, made, before = _on_device.pop(address)
            if version_of(made) != before:
                memory_of(rows).copy_(memory_of(made))


class StateEmission:
    """Appends waits for state copies where the plan needs them complete."""

    def __init__(self, target: fx.Graph) -> None:
        self._target = target
        self._arriving: dict[BufferId, tuple[Node, Node]] = {}
        self._leaving: dict[BufferId, tuple[Node, Node]] = {}

    def start(self, op: LoweredOp, emitted: Node) -> None:
        args: Any = emitted.args
        if op.node.target in (STATE_TO_DEVICE, PARAMETER_FROM_HOST, GRADIENT_FROM_HOST):
            self._arriving[op.writes[0]] = emitted, args[0]
        elif op.node.target is OPERAND_TO_HOST:
            self._leaving.update(dict.fromkeys(op.reads, (emitted, args[0])))
        elif op.node.target is UPDATE_ON_HOST:  # it has waited for its operands
            given = {*args[0], *args[1]}
            self._leaving = {buffer: pair for buffer, pair in self._leaving.items() if pair[0] not in given}
        elif op.node.target is PARAMETER_TO_DEVICE:
            # pinned memory is reused only after its copies, so the wait need not keep the source
            self._arriving.update(dict.fromkeys(op.mutates, (args[0], args[0])))
        elif op.node.target is STATE_TO_HOST:
            self._leaving.update(dict.fromkeys({*op.reads, *op.mutates}, (args[0], args[1])))

    def before_use(self, buffers: Collection[BufferId]) -> None:
        """Wait for copies to these buffers."""
        self._wait(self._arriving, buffers)

    def before_change(self, buffers: Collection[BufferId]) -> None:
        """Wait for copies of these buffers."""
        self._wait(self._leaving, buffers)

    def all(self) -> None:
        self._wait(self._arriving, list(self._arriving))
        self._wait(self._leaving, list(self._leaving))

    def _wait(self, pending: dict[BufferId, tuple[Node, Node]], buffers: Collection[BufferId]) -> None:
        for buffer in buffers if pending else ():
            pair = pending.pop(buffer, None)
            if pair is None:
                continue
            for other in [other for other, copy in pending.items() if copy == pair]:
                del pending[other]
            made, source = pair
            wait = self._target.create_node(
                "call_function", WAIT_FOR_COPY, (made, source), name=f"wait_for_{source.name}"
            )
            wait.meta["val"] = None
