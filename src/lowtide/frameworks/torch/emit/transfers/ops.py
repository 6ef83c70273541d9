"""The ops that run a plan's copies: start a copy to the host, start a copy back, wait for either.

`wait_for_copy` "writes" the copy, so that no compiler moves a reader before it, and reads the source, so that its
storage outlives the copy. The ops keep no state between calls: a saved copy may come back any number of times, for
instance in a second backward pass.

PyTorch's `torch.ops.ao.offload`, `reload` and `wait_tensor` do not fit: they lack CPU tensors, their copies change the
strides, and their wait frees storage that a second backward pass reads.

On CUDA, copies run on two streams per device, one per direction, because links are full-duplex. Pinned memory comes
from PyTorch's caching host allocator. It reuses a dead block only after the copies issued on it are complete, since
`copy_` records an event. Its blocks are powers of two, so pinned memory may exceed the planned bytes. Device memory is
allocated and freed on the compute stream, which waits for a copy before its source is freed. (`record_stream` would
delay the reuse of freed memory.)
"""

import threading
import weakref
from dataclasses import dataclass, field

import numpy as np
import torch

from lowtide.frameworks.torch.internals.operators import define_operator
from lowtide.frameworks.torch.internals.tensors import memory_of, storage_over


@dataclass(slots=True)
class CpuHost:
    """Bytes in host copies of CPU programs, now and at their peak since `restart`.

    The copies are outside of PyTorch's allocator, so that they count as another memory space.
    """

    live_bytes: int = 0
    peak_bytes: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an uninitialized tensor of the same form."""
        memory = np.empty(memory_of(tensor).nbytes, np.uint8)
        self._count(memory.nbytes)
        weakref.finalize(memory, self._count, -memory.nbytes)  # the storage below holds the last reference
        storage = storage_over(memory)
        return torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.shape, tensor.stride())

    def restart(self) -> None:
        """Reset the peak to the present bytes."""
        self.peak_bytes = self.live_bytes

    def _count(self, more: int) -> None:
        with self._lock:
            self.live_bytes += more
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)


cpu_host = CpuHost()
"""The counter of this process."""


_streams: dict[tuple[torch.device, bool], torch.cuda.Stream] = {}
_under_way: dict[int, tuple[torch.cuda.Event, torch.Tensor | None]] = {}
"""By the address of a copy's result: its completion event, and a device tensor that must stay alive until then."""


def _start_copy(source: torch.Tensor, target: torch.device) -> torch.Tensor:
    """Start a copy of the memory that a tensor spans to the host or a CUDA device. Return a tensor of its form.

    The copy starts after the work already issued on the present stream. The result may be read after
    `_let_stream_wait`.
    """
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
    """Let the present stream of a device wait for a copy. The host does not wait."""
    event, _ = _under_way.pop(made.data_ptr(), (None, None))
    if event is not None:
        torch.cuda.current_stream(device).wait_event(event)


def _forget_complete_copies() -> None:
    """Forget complete copies. After an exception, their waits may never come."""
    for address in [address for address, (event, _) in _under_way.items() if event.query()]:
        del _under_way[address]


def _stream(device: torch.device, outward: bool) -> torch.cuda.Stream:
    if (device, outward) not in _streams:
        _streams[device, outward] = torch.cuda.Stream(device)
    return _streams[device, outward]


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
    """Return a new tensor of the same form on a device, fake if `tensor` is fake."""
    return tensor.new_empty_strided(tensor.shape, tensor.stride(), device=device)


def _like_on_host(source: torch.Tensor) -> torch.Tensor:
    return like(source, HOST)


def _fake_wait(made: torch.Tensor, source: torch.Tensor) -> None:
    pass


COPY_TO_HOST = define_operator("copy_to_host(Tensor source) -> Tensor", _copy_to_host, _like_on_host)
"""Starts a copy to the host of the memory that a tensor spans, and returns it in the tensor's form."""
COPY_TO_DEVICE = define_operator("copy_to_device(Tensor source, Device device) -> Tensor", _copy_to_device, like)
"""Starts a copy back of the result of `COPY_TO_HOST`."""
WAIT_FOR_COPY = define_operator("wait_for_copy(Tensor(a!) made, Tensor source) -> ()", _wait_for_copy, _fake_wait)
"""Delays later work on the device until a copy is complete. Its source stays alive until then."""
