"""From one recorded run to addresses: the live ranges of its blocks, packed."""

import numpy as np
from numpy.typing import NDArray

from lowtide.frameworks.onnx.running.allocator import Addresses, NativeAllocator
from lowtide.packing import Buffers, pack

_ALIGNMENT = 64


def plan_addresses(allocator: NativeAllocator, recorded: NDArray[np.int64]) -> Addresses:
    """Pack the allocations of a run, rows as `ArenaRun.recorded` gives them, into the smallest arena found.

    What outlives its run stays out of the arena, so that it never stands in the way of the next.
    """
    inside = np.flatnonzero(recorded[:, 2] >= 0)
    sizes = np.array([allocator.block_bytes(size) for size in recorded[inside, 0].tolist()], np.int64)
    packed = pack(Buffers(recorded[inside, 1], recorded[inside, 2], sizes, alignment=_ALIGNMENT), effort="fast")
    offsets = np.full(len(recorded), -1, np.int64)
    offsets[inside] = packed.offsets
    return Addresses(allocator, recorded[:, 0], offsets, packed.arena_bytes)
