"""The ops of a plan's copies: start a copy to the host, start a copy back, wait for either.

`wait_for_copy` "writes" the copy, so that compilers keep its readers behind it, and reads the source, which thus
outlives the copy. The ops keep no state: a saved copy may come back any number of times. PyTorch's
`torch.ops.ao.offload` and related ops do not fit: they lack CPU tensors, change strides, and free storage that a second
backward pass reads.

On CUDA each direction has its own stream, because links are full-duplex. Pinned memory comes from PyTorch's caching
host allocator, which reuses a block only after its copies. Its blocks are powers of two, so pinned memory may exceed
the plan. Device memory belongs to the compute stream, which waits for a copy before its source is freed;
`record_stream` would delay reuse.
"""

import threading
import weakref
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch

from lowtide.frameworks.torch.internals.operators import define_operator
from lowtide.frameworks.torch.internals.tensors import memory_of, storage_over


@dataclass(slots=True)
class CpuHost:
    """Bytes in host copies of CPU programs, now and at their peak since `restart`."""

    live_bytes: int = 0
    peak_bytes: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        memory = np.empty(memory_of(tensor).nbytes, np.uint8)
        self._count(memory.nbytes)
        weakref.finalize(memory, self._count, -memory.nbytes)  # the storage below holds the last reference
        storage = storage_over(memory)
        return torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.shape, tensor.stride())

    def restart(self) -> None:
        self.peak_bytes = self.live_bytes

    def _count(self, more: int) -> None:
        with self._lock:
            self.live_bytes += more
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)


cpu_host = CpuHost()


_under_way: dict[int, tuple[torch.cuda.Event, torch.Tensor | None]] = {}
"""By address of a copy: its completion event, and a device tensor kept alive until then."""


def _start_copy(source: torch.Tensor, target: torch.device) -> torch.Tensor:
    """Start a copy of the memory that a tensor spans, after work issued so far. Read it after `_let_stream_wait`."""
    outward = target.type != "cuda"
    device = source.device if outward else target
    compute = torch.cuda.current_stream(device)
    made = torch.empty_strided(
        source.shape, source.stride(), dtype=source.dtype, device=target if outward else device, pin_memory=outward
    )
    stream = _stream(device, outward)
    stream.wait_stream(compute)
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
    """Forget complete copies. After an exception, their waits may never come."""
    for address in [address for address, (event, _) in _under_way.items() if event.query()]:
        del _under_way[address]


@cache
def _stream(device: torch.device, outward: bool) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


HOST = torch.device("cpu")


def _copy_to_host(source: torch.Tensor) -> torch.Tensor:
    if source.device.type == "cuda":
        return _start_copy(source, HOST)
    made = cpu_host.empty_like(source)
    memory_of(made).copy_(memory_of(source))
    return made


def _copy_to_device(source: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type == "cuda":
        return _start_copy(source, device)
    made = like(source, device)
    memory_of(made).copy_(memory_of(source))
    return made


def _wait_for_copy(made: torch.Tensor, source: torch.Tensor) -> None:
    device = source.device if made.device == HOST else made.device
    if device.type == "cuda":
        _let_stream_wait(made, device)


def like(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a new tensor of the same form, fake if `tensor` is fake."""
    return tensor.new_empty_strided(tensor.shape, tensor.stride(), device=device)


def _like_on_host(source: torch.Tensor) -> torch.Tensor:
    return like(source, HOST)


def _fake_wait(made: torch.Tensor, source: torch.Tensor) -> None:
    pass


COPY_TO_HOST = define_operator("copy_to_host(Tensor source) -> Tensor", _copy_to_host, _like_on_host)
COPY_TO_DEVICE = define_operator("copy_to_device(Tensor source, Device device) -> Tensor", _copy_to_device, like)
WAIT_FOR_COPY = define_operator("wait_for_copy(Tensor(a!) made, Tensor source) -> ()", _wait_for_copy, _fake_wait)
