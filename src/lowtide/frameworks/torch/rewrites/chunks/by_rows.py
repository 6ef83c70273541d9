"""A product for some rows at a time: large results live as chunks, small ones in slices, sums are added to."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.chunks.column_sums import ColumnSum
from lowtide.frameworks.torch.rewrites.chunks.products import ProductRegion, layout_of
from lowtide.frameworks.torch.rewrites.chunks.roles import RowRole
from lowtide.frameworks.torch.rewrites.chunks.row_chunk import RowChunk
from lowtide.frameworks.torch.rewrites.chunks.windows import Kept, Sums, Windows, sums_by_windows, write_windows
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like

aten = torch.ops.aten
BY_WINDOWS = "lowtide_by_windows"
"""Marks nodes of windows, which need little of what was computed row by row and can wait for whoever takes sums."""


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """How a region is cut."""

    rows: int
    """The rows of a chunk."""
    windows: Windows | None = None
    """How sums over rows are made afterwards; None where they are added to, chunk by chunk."""


@dataclass(frozen=True)
class ProductsByRows(Rewrite[tuple[ProductRegion, ChunkSizes]]):
    """Write some regions as loops over chunks of the rows of their product, unrolled.

    Sums over rows are added to, or made afterwards by windows of classes, one part after the other.
    """

    name = "products-by-rows"
    source = "Every row is computed alone and sums over rows are added to; a trial on the real shapes compares bits."
    chosen: tuple[tuple[ProductRegion, ChunkSizes], ...]

    def sites(self, module: GraphModule) -> Sequence[tuple[ProductRegion, ChunkSizes]]:
        """Return the chosen regions."""
        return self.chosen

    def apply(self, module: GraphModule, sites: Sequence[tuple[ProductRegion, ChunkSizes]]) -> GraphModule:
        """Return a copy in which each region stands, chunk by chunk, where its last node stood."""
        region_of = {node: region for region, _ in sites for node in region.parts}
        later = {node for region, _ in sites for node in region.later}
        sizes_of = dict(sites)
        graph = Graph()
        made: dict[Node, Node] = {}
        for node in module.graph.nodes:
            region = region_of.get(node)
            if region is None and node not in later:
                made[node] = graph.node_copy(node, made.__getitem__)
            elif region is not None and node is region.nodes[-1]:
                write_chunks(graph, region, sizes_of[region], made)
                for waiting in region.later:
                    made[waiting] = graph.node_copy(waiting, made.__getitem__)
        return GraphModule(module, graph)


def write_chunks(graph: Graph, region: ProductRegion, sizes: ChunkSizes, made: dict[Node, Node]) -> None:
    """Append a region in chunks; `made` has what it reads, and gets what others read of it."""
    sums = None if sizes.windows is None else sums_by_windows(region)
    kept = dict(_empty(graph, region.kept, region))
    made |= kept
    rows, maxima, logarithms = ({}, {}, {}) if sums is None else _saved(graph, region, sums, made)
    written = kept | rows
    total = region.rows.count
    copies: dict[Node, Node] = {}
    adding = {} if sums is not None else {node: ColumnSum(graph, node) for node in region.having(RowRole.COLUMN_SUM)}
    for first in range(0, total, sizes.rows):
        chunk = RowChunk(graph, region, made, first, min(sizes.rows, total - first), copies)
        for node, part in region.parts.items():
            if node in adding:
                chunk.add_columns(node, adding[node])
            elif sums is None or node not in sums.nodes:
                chunk.add(node, part)
                if node in written:
                    chunk.keep(node, written[node], chunk.computed[node])
                if node in maxima:
                    chunk.keep_statistics(node, maxima[node], logarithms[node])
    made |= {node: column_sum.total() for node, column_sum in adding.items()}
    if sums is not None and sizes.windows is not None:
        known = set(graph.nodes)
        parts = write_windows(graph, region, sizes.windows, made, Kept(rows, maxima, logarithms))
        made |= _put_together(graph, region, parts, sizes.windows.in_pieces)
        for node in graph.nodes:
            if node not in known:
                node.meta[BY_WINDOWS] = True


def _put_together(
    graph: Graph, region: ProductRegion, made: Iterable[tuple[Node, Node]], in_pieces: bool
) -> dict[Node, Node]:
    """Append what puts together the parts of each sum, and return it.

    That is room, to which each part is copied as soon as it is there. Pieces, and the small sums of columns, wait for
    the last one.
    """
    rooms: dict[Node, Node] = {}
    ends: dict[Node, int] = {}
    waiting: dict[Node, list[Node]] = {}
    for node, part in made:
        if in_pieces or region.parts[node].role is RowRole.COLUMN_SUM:
            waiting.setdefault(node, []).append(part)
            continue
        if node not in rooms:
            with graph.inserting_before(part):
                rooms[node] = _room(graph, node, list(value_of(node).shape))
        first = ends.get(node, 0)
        ends[node] = first + _rows_in(part)
        place = call_like(node, graph, aten.slice.Tensor, rooms[node], 0, first, ends[node])
        call_like(node, graph, aten.copy_.default, place, part)
    for node, parts in waiting.items():
        dim = -1 if region.parts[node].role is RowRole.COLUMN_SUM else 0
        rooms[node] = call_like(node, graph, aten.cat.default, parts, dim)
    return rooms


def _rows_in(part: Node) -> int:
    """Return the rows of a slice."""
    _, _, first, last = part.args
    return cast("int", last) - cast("int", first)


def _empty(graph: Graph, nodes: Iterable[Node], region: ProductRegion) -> Iterator[tuple[Node, Node]]:
    """Append room for what is kept of every row."""
    for node in nodes:
        if region.parts[node].role is RowRole.ROWS:
            yield node, _room(graph, node, list(value_of(node).shape), layout_of(value_of(node)))


def _room(graph: Graph, node: Node, shape: list[int], layout: torch.memory_format | None = None) -> Node:
    value = value_of(node)
    more = {} if layout in (None, torch.contiguous_format) else {"memory_format": layout}
    return call_like(node, graph, aten.empty.memory_format, shape, dtype=value.dtype, device=value.device, **more)


def _saved(
    graph: Graph, region: ProductRegion, sums: Sums, made: Mapping[Node, Node]
) -> tuple[dict[Node, Node], dict[Node, Node], dict[Node, Node]]:
    """Append room for what windows need: small results of rows, maxima, logarithms of sums."""
    rows = {node: made[node] for node in sums.rows if node in made}
    rows |= dict(_empty(graph, (node for node in sums.rows if node not in made), region))
    maxima, logarithms = (
        {node: _room(graph, node, [value_of(node).shape[0], 1]) for node in sums.logarithms} for _ in range(2)
    )
    return rows, maxima, logarithms
