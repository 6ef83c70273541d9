"""The host of programs that run on the CPU: memory beside PyTorch's allocator, so that it counts as another space."""

import threading
import weakref
from dataclasses import dataclass, field

import numpy as np
import torch

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
