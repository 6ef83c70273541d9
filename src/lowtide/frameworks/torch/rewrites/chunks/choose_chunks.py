"""Choosing what to do in chunks, and in how many: the fewest with which something else needs the most memory."""

import math
from collections.abc import Mapping, Sequence

from torch.fx import GraphModule

from lowtide.frameworks.torch.reading.lowering import Lowered, LoweredOp, lower
from lowtide.frameworks.torch.reading.scratch import scratch_bytes
from lowtide.frameworks.torch.rewrites.chunks.regions import Region, find_regions
from lowtide.graph import Lifetime
from lowtide.index_spaces import BufferId

_CHUNKS = (2, 4, 8, 16)
_ELEMENTS = 64
"""Chunks have a multiple of so many elements, whole vector registers for every kernel."""
_MOST_GROWTH, _ALWAYS = 0.5, 500
"""How many ops chunks may add, for each op of the program, and in any case: planning must not take notably longer."""


def choose_chunks(module: GraphModule, inputs: Sequence[tuple[str, Lifetime]]) -> dict[Region, int]:
    """Return the regions that are worth doing in chunks, each with the rows of a chunk.

    What counts is what an op needs for itself: its transient operands, results and scratch. If an op of a region needs
    more than every op outside of regions, the region is cut into 2, 4, 8 or 16 chunks: the fewest with which it needs
    no more than those. The neediest region comes first. Whether the peak falls is for planning to say.
    """
    regions = find_regions(module.graph)
    if not regions:
        return {}
    needs = _Needs(lower(module, inputs), regions)
    rows_of: dict[Region, int] = {}
    room = max(_ALWAYS, int(needs.n_ops * _MOST_GROWTH))
    for region in sorted(regions, key=lambda region: -needs.of(region, 1)):
        chunks = next((n for n in (1, *_CHUNKS) if needs.of(region, n) <= needs.outside), _CHUNKS[-1])
        added = chunks * len(region.nodes)
        rows = _rows_of_a_chunk(region, chunks)
        if rows >= region.shape[0] or needs.of(region, chunks) >= needs.of(region, 1) or added > room:
            continue
        room -= added
        rows_of[region] = rows
    return rows_of


def _rows_of_a_chunk(region: Region, chunks: int) -> int:
    unit = _ELEMENTS // math.gcd(_ELEMENTS, math.prod(region.shape[1:]))
    return -(-region.shape[0] // (chunks * unit)) * unit


class _Needs:
    """What ops need for themselves, in bytes."""

    def __init__(self, lowered: Lowered, regions: list[Region]) -> None:
        region_of = {node: region for region in regions for node in region.nodes}
        self.n_ops = len(lowered.ops)
        self.outside = 0
        """The most that any op outside of the regions needs."""
        self._parts: dict[Region, list[tuple[int, int]]] = {region: [] for region in regions}
        for op in lowered.ops:
            region = region_of.get(op.node)
            sizes = _transient(lowered, op)
            if region is None:
                self.outside = max(self.outside, sum(sizes.values()) + scratch_bytes(op.node))
                continue
            inside = {buffer for node in region.nodes for buffer in lowered.buffers_of.get(node, ())}
            made = sum(size for buffer, size in sizes.items() if buffer in inside)
            self._parts[region].append((sum(sizes.values()) - made, made + scratch_bytes(op.node)))

    def of(self, region: Region, chunks: int) -> int:
        """Return the most that an op of a region needs, done in so many chunks."""
        return max(kept + made // chunks for kept, made in self._parts[region])


def _transient(lowered: Lowered, op: LoweredOp) -> Mapping[BufferId, int]:
    touched = dict.fromkeys((*op.reads, *op.writes, *op.mutates))
    buffers = lowered.buffers
    return {i: buffers[i].size_bytes for i in touched if buffers[i].lifetime is not Lifetime.PERSISTENT}
