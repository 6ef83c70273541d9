"""T"""

import threading
import weakref
from dataclasses import dataclass, field

import numpy as np
import torch

from lowtide.frameworks.torch.internals.operators import define_operator
from lowtide.frameworks.torch.internals.tensors import memory_of, storage_over


@dataclass(slots=True)
class CpuHost:
    """Bytes that copies hold now, and the most since `restart`."""

    live_bytes: int = 0
    peak_bytes: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an uninitialized tensor of the same form."""
        memory = np.empty(memory_of(tensor).nbytes, np.uint8)
        self._count(memory.nbytes)
        weakref.finalize(memory, self._count, -memory.nbytes)  # the storage below is its last holder
        storage = storage_over(memory)
        return torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.shape, tensor.stride())

    def restart(self) -> None:
        """Start to look for the peak anew."""
        self.peak_bytes = self.live_bytes

    def _count(self, more: int) -> None:
        with self._lock:
            self.live_bytes += more
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)


cpu_host = CpuHost()
"""All copies of this process."""


_streams: dict[tuple[torch.device, bool], torch.cuda.Stream] = {}
_under_way: dict[int, tuple[torch.cuda.Event, torch.Tensor | None]] = {}
"""By the address of what a copy makes: when it is complete, and a tensor on the device that must not die before."""


def _start_copy(source: torch.Tensor, target: torch.device) -> torch.Tensor:
    """Start a copy of what a tensor spans to the host or to a CUDA device, and return it in the tensor's form.

    The copy starts when all is done that the present stream was given so far. Nobody may read it before
    `wait_for_copy`.
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
    _let_go()
    _under_way[made.data_ptr()] = complete, None if outward else made
    return made


def _let_stream_wait(made: torch.Tensor, device: torch.device) -> None:
    """Let the present stream of a device wait until a copy is complete; the host does not wait."""
    event, _ = _under_way.pop(made.data_ptr(), (None, None))
    if event is not None:
        torch.cuda.current_stream(device).wait_event(event)


def _let_go() -> None:
    """Forget copies that are complete: their waits have nothing to wait for, or never come after an exception."""
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
    """Return a new tensor of the same form on a device; of a fake one another fake one."""
    return tensor.new_empty_strided(tensor.shape, tensor.stride(), device=device)


def _like_on_host(source: torch.Tensor) -> torch.Tensor:
    return like(source, HOST)


def _nothing(made: torch.Tensor, source: torch.Tensor) -> None:
    pass


COPY_TO_HOST = define_operator("copy_to_host(Tensor source) -> Tensor", _copy_to_host, _like_on_host)
"""Starts a copy to the host of what a tensor spans there, and returns it in the tensor's form."""
COPY_TO_DEVICE = define_operator("copy_to_device(Tensor source, Device device) -> Tensor", _copy_to_device, like)
"""Starts a copy back of what `COPY_TO_HOST` returned."""
WAIT_FOR_COPY = define_operator("wait_for_copy(Tensor(a!) made, Tensor source) -> ()", _wait_for_copy, _nothing)
"""Holds what is issued next on the device until a copy is complete; its source stays until then."""
