"""What the ops of a program need for themselves, as a whole or in chunks, and what stands beside them meanwhile."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch.fx import Node

from lowtide.core.index_spaces import BufferId
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.lowering import Lowered, LoweredOp
from lowtide.frameworks.torch.reading.scratch import scratch_bytes
from lowtide.frameworks.torch.rewrites.chunks.by_rows import ChunkSizes
from lowtide.frameworks.torch.rewrites.chunks.products import NEARLY, ProductRegion, outside
from lowtide.frameworks.torch.rewrites.chunks.regions import Region
from lowtide.frameworks.torch.rewrites.chunks.roles import RowRole


class NeedsOfRegions:
    """What ops need for themselves, in bytes."""

    def __init__(
        self,
        lowered: Lowered,
        updates: Sequence[Region],
        products: Sequence[ProductRegion] = (),
        dying: Sequence[ProductRegion] = (),
        networks: Sequence[ProductRegion] = (),
    ) -> None:
        """Take the ops of a program and its regions; of some products the sums die part by part, some are networks."""
        regions: list[Region | ProductRegion] = [*updates, *products]
        region_of = {node: region for region in regions for node in region.nodes}
        kept = {node for region in products for node in region.kept}
        kept -= {node for region in dying for node in region.having(RowRole.SUM)}
        self._lowered = lowered
        self.n_ops = len(lowered.ops)
        self.outside = 0
        """The most that any op outside of the regions needs."""
        self._standing: dict[Region | ProductRegion, set[BufferId]] = {region: set() for region in updates}
        self._standing |= {region: set(_standing(lowered, region)) for region in products}
        self._parts: dict[Region | ProductRegion, list[tuple[int, int]]] = {region: [] for region in regions}
        inside_of = {region: _buffers_of(lowered, set(region.nodes) - kept) for region in regions}
        saved = {region: _Saved(lowered, inside_of[region]) for region in networks}
        for op in lowered.ops:
            region = region_of.get(op.node)
            sizes = _transient(lowered, op)
            if region is None:
                self.outside = max(self.outside, sum(sizes.values()) + scratch_bytes(op.node))
                continue
            sizes = {buffer: size for buffer, size in sizes.items() if buffer not in self._standing[region]}
            made = sum(size for buffer, size in sizes.items() if buffer in inside_of[region])
            others = sum(sizes.values()) - made
            if isinstance(region, ProductRegion) and region in saved:
                made = saved[region].at(op)
            self._parts[region].append((others, made + scratch_bytes(op.node)))

    def standing(self, region: ProductRegion) -> int:
        """Return the bytes of what a region reads that is nearly as large as its product: it stands whole meanwhile."""
        return sum(self._lowered.buffers[buffer].size_bytes for buffer in self._standing[region])

    def of(self, region: Region | ProductRegion, chunks: int) -> int:
        """Return the most that an op of a region needs beside what stands, done in so many chunks."""
        return max(kept + made // chunks for kept, made in self._parts[region])

    def by(self, region: ProductRegion, sizes: ChunkSizes) -> int:
        """Return the same for chunks of some size."""
        return self.of(region, region.rows.count // sizes.rows)

    def held_across(self, region: ProductRegion) -> int:
        """Return the bytes that are there before a region and read after it, in the program's order, or stand."""
        inside = set(region.nodes)
        ops = self._lowered.ops
        places = [place for place, op in enumerate(ops) if op.node in inside]
        before = {buffer for op in ops[: places[0]] for buffer in (*op.writes, *op.mutates)}
        after = {buffer for op in ops[places[-1] + 1 :] for buffer in (*op.reads, *op.mutates)}
        buffers = self._lowered.buffers
        held = (buffers[i] for i in before & after | self._standing[region])
        return sum(buffer.size_bytes for buffer in held if buffer.lifetime is not Lifetime.PERSISTENT)


class _Saved:
    """What is there of a region's own at each of its ops: a network keeps what its backward pass reads."""

    def __init__(self, lowered: Lowered, inside: set[BufferId]) -> None:
        self._bytes: dict[Node, int] = {}
        last = {buffer: op.node for op in lowered.ops for buffer in (*op.reads, *op.writes, *op.mutates)}
        alive = set[BufferId]()
        for op in lowered.ops:
            alive.update(inside.intersection(op.writes))
            self._bytes[op.node] = sum(lowered.buffers[buffer].size_bytes for buffer in alive)
            alive = {buffer for buffer in alive if last[buffer] is not op.node}

    def at(self, op: LoweredOp) -> int:
        """Return the bytes that are there while an op runs."""
        return self._bytes[op.node]


def _buffers_of(lowered: Lowered, nodes: Iterable[Node]) -> set[BufferId]:
    return {buffer for node in nodes for buffer in lowered.buffers_of.get(node, ())}


def _standing(lowered: Lowered, region: ProductRegion) -> Iterator[BufferId]:
    read = dict.fromkeys(buffer for node in outside(region) for buffer in lowered.buffers_of.get(node, ()))
    for buffer in read:
        known = lowered.buffers[buffer]
        is_held = known.lifetime is not Lifetime.PERSISTENT
        if is_held and known.size_bytes * NEARLY >= bytes_of(region.product):
            yield buffer


def _transient(lowered: Lowered, op: LoweredOp) -> Mapping[BufferId, int]:
    touched = dict.fromkeys((*op.reads, *op.writes, *op.mutates))
    buffers = lowered.buffers
    return {i: buffers[i].size_bytes for i in touched if buffers[i].lifetime is not Lifetime.PERSISTENT}


def bytes_of(node: Node) -> int:
    """Return the bytes of a tensor."""
    value: Any = value_of(node)
    return value.numel() * value.element_size()
