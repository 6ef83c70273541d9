"""What a device's caching allocator counts by itself, read without disturbing whoever else reads it."""
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class AllocatorStart:
    """The bytes that a device's allocator had given out at some time, and its highest mark by then."""

    device: torch.device
    given: int
    """Without the tensors that the program is given, which count as its own."""
    mark: int

    @classmethod
    def of(cls, inputs: Sequence[Any]) -> "AllocatorStart | None":
        """Note what is allocated on the device of some inputs; None on the CPU, which counts nothing."""
        tensors = [each for each in inputs if isinstance(each, torch.Tensor) and each.device.type == "cuda"]
        if not tensors:
            return None
        device = tensors[0].device
        own = sum(each.nbytes for each in tensors if not isinstance(each, torch.nn.Parameter))
        return cls(device, torch.cuda.memory_allocated(device) - own, torch.cuda.max_memory_allocated(device))

    def peak_since(self) -> int | None:
        """Return the most bytes given out since; None where the highest mark is older, which nobody resets here."""
        mark = torch.cuda.max_memory_allocated(self.device)
        return mark - self.given if mark > self.mark else None
