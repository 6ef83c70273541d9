"""Blocks of storage: residencies that take over one another's bytes through in-place pairs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.analysis.live_ranges import LiveRanges
from lowtide.engine.graph import Graph


@dataclass(frozen=True, slots=True, eq=False)
class StorageBlocks:
    """What needs a place of its own: one entry per block, ordered by first step. Steps are half-open."""

    spaces: NDArray[np.int64]
    first_steps: NDArray[np.int64]
    """-1 for what is there before the first step."""
    last_steps: NDArray[np.int64]
    sizes: NDArray[np.int64]
    of_residency: NDArray[np.int64]
    """Per residency of the live ranges, its block."""

    def __len__(self) -> int:
        return len(self.spaces)


def storage_blocks(graph: Graph, ranges: LiveRanges) -> StorageBlocks:
    """Join residencies that hand their storage on; every other residency is a block alone. O(residencies).

    All inputs are there before the first step, even one that is freed in it. That holds for an input in its home space
    only: a copy that the first step makes of it in another space is not there before.
    """
    homes = graph.buffer_spaces[ranges.buffers]
    at_start = (ranges.first_steps == 0) & (ranges.spaces == homes) & graph.exists_at_start[ranges.buffers]
    of_residency = np.empty(len(ranges), np.int64)
    starts = np.flatnonzero(ranges.continues < 0)
    of_residency[starts] = np.arange(len(starts))
    for row in np.flatnonzero(ranges.continues >= 0).tolist():
        of_residency[row] = of_residency[ranges.continues[row]]
    last_steps = ranges.last_steps[starts]
    np.maximum.at(last_steps, of_residency, ranges.last_steps)
    return StorageBlocks(
        spaces=ranges.spaces[starts].astype(np.int64),
        first_steps=(ranges.first_steps - at_start)[starts],
        last_steps=last_steps,
        sizes=graph.sizes[ranges.buffers[starts]],
        of_residency=of_residency,
    )
