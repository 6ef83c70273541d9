"""Choosing what to do in pieces, and in how many: as few as let something else be what needs most memory."""

import math
from collections.abc import Mapping
from dataclasses import replace

from lowtide.frameworks.torch.captured import Captured
from lowtide.frameworks.torch.lowering import Lowered, LoweredOp, lower
from lowtide.frameworks.torch.pieces.regions import Region, find_regions
from lowtide.frameworks.torch.pieces.write_pieces import write_pieces
from lowtide.frameworks.torch.scratch import scratch_bytes
from lowtide.graph import Lifetime

_PIECES = (2, 4, 8, 16)
_ELEMENTS = 64
"""Pieces have a multiple of so many elements, whole vector registers for every kernel."""
_MOST_GROWTH, _ALWAYS = 0.5, 500
"""How many ops pieces may add, for each op of the program, and in any case: planning must not take notably longer."""


def split_updates(captured: Captured) -> Captured | None:
    """Return the program with the updates of its largest tensors done in pieces of rows; None where none is worth it.

    What counts is what an op needs for itself: its transient operands, results and scratch. Regions with an op that
    needs more than all ops outside of regions are cut into 2, 4, 8 or 16 pieces, the fewest by which they need no more
    than those, the neediest region first. Whether the peak falls is for planning to say. Results are equal bit for bit.
    """
    module = captured.graph_module
    regions = find_regions(module.graph)
    if not regions:
        return None
    needs = _Needs(lower(module, captured.inputs), regions)
    counts: dict[Region, int] = {}
    room = max(_ALWAYS, int(needs.n_ops * _MOST_GROWTH))
    for region in sorted(regions, key=lambda region: -needs.of(region, 1)):
        pieces = next((n for n in (1, *_PIECES) if needs.of(region, n) <= needs.outside), _PIECES[-1])
        added = pieces * len(region.nodes)
        rows = _rows_of_a_piece(region, pieces)
        if rows >= region.shape[0] or needs.of(region, pieces) >= needs.of(region, 1) or added > room:
            continue
        room -= added
        counts[region] = rows
    if not counts:
        return None
    most = max(-(-region.shape[0] // rows) for region, rows in counts.items())
    updates = "the largest update" if len(counts) == 1 else f"{len(counts)} updates"
    name = f"{captured.name}, {updates} in {most} pieces"
    return replace(captured, name=name, graph_module=write_pieces(module, counts))


def _rows_of_a_piece(region: Region, pieces: int) -> int:
    unit = _ELEMENTS // math.gcd(_ELEMENTS, math.prod(region.shape[1:]))
    return -(-region.shape[0] // (pieces * unit)) * unit


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

    def of(self, region: Region, pieces: int) -> int:
        """Return the most that an op of a region needs, done in so many pieces."""
        return max(kept + made // pieces for kept, made in self._parts[region])


def _transient(lowered: Lowered, op: LoweredOp) -> Mapping[int, int]:
    touched = dict.fromkeys((*op.reads, *op.writes, *op.mutates))
    buffers = lowered.buffers
    return {i: buffers[i].size_bytes for i in touched if buffers[i].lifetime is not Lifetime.PERSISTENT}
