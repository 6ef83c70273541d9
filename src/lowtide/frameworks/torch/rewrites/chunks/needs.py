"""Memory that ops of regions need, with and without chunks (`RegionNeeds`)."""

from collections.abc import Iterable, Mapping, Sequence

from torch.fx import Node

from lowtide.core.index_spaces import BufferId
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.reading.lowering import Lowered
from lowtide.frameworks.torch.reading.scratch import scratch_bytes
from lowtide.frameworks.torch.rewrites.chunks.product_region import LARGE_SHARE, ProductRegion, bytes_of
from lowtide.frameworks.torch.rewrites.chunks.rule import RowRole
from lowtide.frameworks.torch.rewrites.chunks.updates import UpdateRegion

Region = UpdateRegion | ProductRegion


class RegionNeeds:
    """Bytes of transient operands, results and scratch."""

    def __init__(
        self,
        lowered: Lowered,
        updates: Sequence[UpdateRegion],
        products: Sequence[ProductRegion] = (),
        separate: Sequence[ProductRegion] = (),
        networks: Sequence[ProductRegion] = (),
    ) -> None:
        """Take regions: windows free the sums of `separate` ones one by one; `networks` are whole networks."""
        nodes_of: dict[Region, list[Node]] = {region: region.nodes for region in updates}
        nodes_of |= {region: list(region.ops) for region in products}
        region_of = {node: region for region, nodes in nodes_of.items() for node in nodes}
        results = {node for region in products for node in region.results}
        results -= {node for region in separate for node in region.with_role(RowRole.SUM)}
        self._lowered = lowered
        self.n_ops = len(lowered.ops)
        self.max_outside = 0
        self._operands: dict[Region, set[BufferId]] = {region: set() for region in updates}
        self._operands |= {region: _large_operands(lowered, region) for region in products}
        self._ops: dict[Region, list[tuple[int, int]]] = {region: [] for region in nodes_of}
        inside_of = {region: _buffers_of(lowered, set(nodes) - results) for region, nodes in nodes_of.items()}
        alive = {region: _alive_bytes(lowered, inside_of[region]) for region in networks}
        for op in lowered.ops:
            region = region_of.get(op.node)
            sizes = _transient_sizes(lowered, {*op.reads, *op.writes, *op.mutates})
            if region is None:
                self.max_outside = max(self.max_outside, sum(sizes.values()) + scratch_bytes(op.node))
                continue
            sizes = {buffer: size for buffer, size in sizes.items() if buffer not in self._operands[region]}
            made = sum(size for buffer, size in sizes.items() if buffer in inside_of[region])
            others = sum(sizes.values()) - made
            if isinstance(region, ProductRegion) and region in alive:
                made = alive[region][op.node]
            self._ops[region].append((others, made + scratch_bytes(op.node)))

    def operand_bytes(self, region: ProductRegion) -> int:
        """Return the bytes of operands about as large as the product, alive throughout."""
        return sum(self._lowered.buffers[buffer].size_bytes for buffer in self._operands[region])

    def op_bytes(self, region: Region, chunks: int) -> int:
        """Return the largest need of a region's op in so many chunks, without those operands."""
        return max(others + made // chunks for others, made in self._ops[region])

    def alive_across(self, region: ProductRegion) -> int:
        """Return the bytes alive before and after a region, or in those operands."""
        inside = region.ops.keys()
        ops = self._lowered.ops
        places = [place for place, op in enumerate(ops) if op.node in inside]
        before = {buffer for op in ops[: places[0]] for buffer in (*op.writes, *op.mutates)}
        after = {buffer for op in ops[places[-1] + 1 :] for buffer in (*op.reads, *op.mutates)}
        return sum(_transient_sizes(self._lowered, before & after | self._operands[region]).values())


def _alive_bytes(lowered: Lowered, inside: set[BufferId]) -> Mapping[Node, int]:
    found: dict[Node, int] = {}
    last = {buffer: op.node for op in lowered.ops for buffer in (*op.reads, *op.writes, *op.mutates)}
    alive = set[BufferId]()
    for op in lowered.ops:
        alive.update(inside.intersection(op.writes))
        found[op.node] = sum(lowered.buffers[buffer].size_bytes for buffer in alive)
        alive = {buffer for buffer in alive if last[buffer] is not op.node}
    return found


def _buffers_of(lowered: Lowered, nodes: Iterable[Node]) -> set[BufferId]:
    return {buffer for node in nodes for buffer in lowered.buffers_of.get(node, ())}


def _large_operands(lowered: Lowered, region: ProductRegion) -> set[BufferId]:
    read = _transient_sizes(lowered, _buffers_of(lowered, region.sources))
    return {buffer for buffer, size in read.items() if size * LARGE_SHARE >= bytes_of(region.product)}


def _transient_sizes(lowered: Lowered, buffers: Iterable[BufferId]) -> dict[BufferId, int]:
    known = {i: lowered.buffers[i] for i in buffers}
    return {i: buffer.size_bytes for i, buffer in known.items() if buffer.lifetime is not Lifetime.PERSISTENT}
