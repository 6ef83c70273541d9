"""A plan's copies to the host and back, on CPU and CUDA: ops, nodes, and link speed.

The op `wait_for_copy` "writes" the copy, so that compilers keep its readers behind it, and reads the source, which thus
outlives the copy. The ops keep no state: a saved copy may come back repeatedly. PyTorch's `torch.ops.ao.offload` lacks
CPU tensors, changes strides, and frees storage that a second backward pass reads.

On CUDA each direction has its own stream, as links are full-duplex. PyTorch's host allocator reuses pinned blocks only
after their copies. Blocks are powers of two, so pinned memory may exceed the plan. The compute stream waits for a copy
before its source is freed; `record_stream` would delay reuse.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import fx
from torch.fx import Node

from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import BufferId
from lowtide.core.units import given_bytes, parse_bandwidth, parse_bytes
from lowtide.engine.costs import PLAIN_MACHINE
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.frameworks.torch.internals.host_memory import HOST, empty_on_host
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import define_operator
from lowtide.frameworks.torch.internals.runtime import memory_clock
from lowtide.frameworks.torch.internals.tensors import memory_of

_under_way: dict[int, tuple[torch.cuda.Event, torch.Tensor | None]] = {}
"""By address of a copy: its completion, and a device tensor kept alive until then."""


def _start_copy(source: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """Start a copy of the memory that a tensor spans. Read it after `_let_stream_wait`."""
    outward = made.device.type != "cuda"
    device = source.device if outward else made.device
    stream = _stream(device, outward)
    stream.wait_stream(torch.cuda.current_stream(device))
    complete = torch.cuda.Event()
    with torch.cuda.stream(stream):
        memory_of(made).copy_(memory_of(source), non_blocking=True)
        complete.record()
    _forget_complete_copies()
    _under_way[made.data_ptr()] = complete, None if outward else made
    return made


def _let_stream_wait(made: torch.Tensor, device: torch.device) -> None:
    event, _ = _under_way.pop(made.data_ptr(), (None, None))
    if event is not None:
        torch.cuda.current_stream(device).wait_event(event)


def _forget_complete_copies() -> None:
    """Forget complete copies: after an exception, their waits may never come."""
    for address in [address for address, (event, _) in _under_way.items() if event.query()]:
        del _under_way[address]


@cache
def _stream(device: torch.device, outward: bool) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def copy_to_host(source: torch.Tensor) -> torch.Tensor:
    """Start a copy of a tensor to its host."""
    made = empty_on_host(source, source.device)
    if source.device.type == "cuda":
        return _start_copy(source, made)
    memory_of(made).copy_(memory_of(source))
    return made


def copy_to_device(source: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Start a copy of a tensor on the host."""
    made = like(source, device)
    if device.type == "cuda":
        return _start_copy(source, made)
    memory_of(made).copy_(memory_of(source))
    return made


def event_of(made: torch.Tensor) -> torch.cuda.Event | None:
    return _under_way.get(made.data_ptr(), (None, None))[0]


def copy_to_pinned(source: torch.Tensor, made: torch.Tensor) -> None:
    _start_copy(source, made)


def _wait_for_copy(made: torch.Tensor, source: torch.Tensor) -> None:
    device = source.device if made.device == HOST else made.device
    if device.type == "cuda":
        _let_stream_wait(made, device)


def like(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a new tensor of the same form; fake if `tensor` is."""
    return tensor.new_empty_strided(tensor.shape, tensor.stride(), device=device)


def _like_on_host(source: torch.Tensor) -> torch.Tensor:
    return like(source, HOST)


def _fake_wait(made: torch.Tensor, source: torch.Tensor) -> None:
    pass


COPY_TO_HOST = define_operator("copy_to_host(Tensor source) -> Tensor", copy_to_host, _like_on_host)
COPY_TO_DEVICE = define_operator("copy_to_device(Tensor source, Device device) -> Tensor", copy_to_device, like)
WAIT_FOR_COPY = define_operator("wait_for_copy(Tensor(a!) made, Tensor source) -> ()", _wait_for_copy, _fake_wait)


ON_HOST = "lowtide_on_host"


class CopyEmission:
    """Appends copies, and waits where the plan needs them complete."""

    def __init__(self, target: fx.Graph) -> None:
        self._target = target
        self._on_host: dict[BufferId, Node] = {}
        self._leaving: dict[BufferId, Node] = {}
        self._arriving: dict[BufferId, Node] = {}

    def is_on_host(self, buffer: BufferId) -> bool:
        return buffer in self._on_host

    def copy_out(self, buffer: BufferId, tensor: Node) -> None:
        value: torch.Tensor = value_of(tensor)
        self._on_host[buffer] = self._append(COPY_TO_HOST, (tensor,), f"{tensor.name}_on_host", like(value, HOST))
        self._on_host[buffer].meta[ON_HOST] = True
        self._leaving[buffer] = tensor

    def copy_in(self, buffer: BufferId, device: torch.device) -> Node:
        copy = self._on_host[buffer]
        name = f"{copy.name.removesuffix('_on_host')}_back"
        self._arriving[buffer] = self._append(COPY_TO_DEVICE, (copy, device), name, like(value_of(copy), device))
        return self._arriving[buffer]

    def await_departure(self, buffer: BufferId) -> None:
        """Wait until the device may free or overwrite a buffer."""
        if buffer in self._leaving:
            self._wait(self._on_host[buffer], self._leaving.pop(buffer))

    def await_arrival(self, buffer: BufferId) -> None:
        """Wait until the device may read a buffer."""
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


_USUAL_SHARE = 1 / 64
"""PCIe speed by memory speed: 25 GB/s to 2 TB/s, 50 GB/s to 3.3 TB/s."""


def check_host(allow: Iterable[str] | None, bandwidth: str | int | None, capacity: str | int | None) -> None:
    """Raise UsageError for host settings that are invalid or without "offload" in `allow`."""
    if "offload" not in (allow or ()) and (bandwidth, capacity) != (None, None):
        raise UsageError("host_bandwidth and host_capacity need offload; add 'offload' to allow, or omit them")
    if capacity is not None:
        given_bytes(capacity)
    if bandwidth is not None and _speed(bandwidth) <= 0:
        raise UsageError(f"host_bandwidth {bandwidth!r} is not a speed; give more than 0, like '25 GB/s'")


def host_for(graph: Graph, bandwidth: str | int | None, capacity: str | int | None) -> Host:
    """Return the host for a graph.

    The link's `bandwidth` each way is "25 GB/s" or bytes per second; by default 1/64 of the memory's. On a GPU it is
    scaled to the slower machine that op costs assume. `capacity` limits the program's host bytes. Raises UsageError for
    unreadable values.
    """
    most = None if capacity is None else parse_bytes(capacity)
    plain = PLAIN_MACHINE.bytes_per_second
    speed = plain * _USUAL_SHARE if bandwidth is None else _speed(bandwidth) * plain / _memory_speed(graph)
    return Host(bandwidth_bytes_per_s=speed, capacity_bytes=most)


def _speed(bandwidth: str | int) -> int:
    return bandwidth if isinstance(bandwidth, int) else parse_bandwidth(bandwidth)


def _memory_speed(graph: Graph) -> float:
    device = graph.spaces[0].name
    clock, bus = memory_clock(device) if device.startswith("cuda") else (0, 0)
    return 2e3 * clock * bus / 8 or PLAIN_MACHINE.bytes_per_second  # two transfers a cycle
