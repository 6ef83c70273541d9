"""Emit the copies of a plan and the waits for them."""

from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.core.index_spaces import BufferId
from lowtide.frameworks.torch.emit.transfers.ops import COPY_TO_DEVICE, COPY_TO_HOST, HOST, WAIT_FOR_COPY, like
from lowtide.frameworks.torch.internals.nodes import value_of

ON_HOST = "lowtide_on_host"
"""Marks host copies in node metadata."""


class CopyEmission:
    """Appends copies to a graph, and waits where the plan needs them complete."""

    def __init__(self, target: Graph) -> None:
        self._target = target
        self._on_host: dict[BufferId, Node] = {}
        self._leaving: dict[BufferId, Node] = {}
        """Device tensors with a copy out under way."""
        self._arriving: dict[BufferId, Node] = {}
        """New device tensors with a copy back under way."""

    def is_on_host(self, buffer: BufferId) -> bool:
        return buffer in self._on_host

    def copy_out(self, buffer: BufferId, tensor: Node) -> None:
        """Start to copy a buffer to the host, in the form of `tensor`, which spans it."""
        value: torch.Tensor = value_of(tensor)
        self._on_host[buffer] = self._append(COPY_TO_HOST, (tensor,), f"{tensor.name}_on_host", like(value, HOST))
        self._on_host[buffer].meta[ON_HOST] = True
        self._leaving[buffer] = tensor

    def copy_in(self, buffer: BufferId, device: torch.device) -> Node:
        """Start to copy a buffer back. Read it after `await_arrival`."""
        copy = self._on_host[buffer]
        name = f"{copy.name.removesuffix('_on_host')}_back"
        self._arriving[buffer] = self._append(COPY_TO_DEVICE, (copy, device), name, like(value_of(copy), device))
        return self._arriving[buffer]

    def await_departure(self, buffer: BufferId) -> None:
        """Wait until a buffer may be freed or overwritten on the device."""
        if buffer in self._leaving:
            self._wait(self._on_host[buffer], self._leaving.pop(buffer))

    def await_arrival(self, buffer: BufferId) -> None:
        """Wait until a buffer may be read on the device."""
        if buffer in self._arriving:
            self._wait(self._arriving.pop(buffer), self._on_host[buffer])

    def await_all_arrivals(self) -> None:
        for buffer in list(self._arriving):
            self.await_arrival(buffer)

    def free_copy(self, buffer: BufferId) -> None:
        self.await_arrival(buffer)
        self.await_departure(buffer)
        del self._on_host[buffer]

    def _wait(self, made: Node, source: Node) -> None:
        self._append(WAIT_FOR_COPY, (made, source), f"wait_for_{made.name}", None)

    def _append(self, target: Any, args: tuple[Any, ...], name: str, value: torch.Tensor | None) -> Node:
        node = self._target.create_node("call_function", target, args, name=name)
        node.meta["val"] = value
        return node
