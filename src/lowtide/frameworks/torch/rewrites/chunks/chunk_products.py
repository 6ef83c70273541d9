"""Rewrites that compute product regions by chunks (`ChunkProducts`, `RecomputeRows`)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import graph_module, map_arguments, value_of
from lowtide.frameworks.torch.rewrites.chunks.product_chunk import ColumnSum, ProductChunk
from lowtide.frameworks.torch.rewrites.chunks.product_region import SECOND_PASS, ProductRegion, TwoPasses, row_layout
from lowtide.frameworks.torch.rewrites.chunks.rule import RowRole
from lowtide.frameworks.torch.rewrites.chunks.windows import (
    RowValues,
    Windows,
    WindowSums,
    append_windows,
    sums_by_windows,
)
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like, copy_module, origin_of

aten = torch.ops.aten
BY_WINDOWS = "lowtide_by_windows"
"""Meta key of window nodes, which can wait until their sums are read."""


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """Sizes of the chunks of a product region."""

    rows: int
    windows: Windows | None = None


@dataclass(frozen=True)
class ChunkProducts(Rewrite[tuple[ProductRegion, ChunkSizes]]):
    """Unroll product regions into chunks."""

    name = "products-by-rows"
    source = "Rows are computed independently; a trial on the real shapes compares bits."
    chosen: tuple[tuple[ProductRegion, ChunkSizes], ...]

    def sites(self, module: GraphModule) -> Sequence[tuple[ProductRegion, ChunkSizes]]:
        return self.chosen

    def apply(self, module: GraphModule, sites: Sequence[tuple[ProductRegion, ChunkSizes]]) -> GraphModule:
        region_of = {node: region for region, _ in sites for node in region.ops}
        delayed = {node for region, _ in sites for node in region.delayed}
        sizes_of = dict(sites)

        def append(graph: Graph, node: Node, made: dict[Node, Node]) -> None:
            region = region_of.get(node)
            if region is not None and node is next(reversed(region.ops)):
                append_chunks(graph, region, sizes_of[region], made)
                for waiting in region.delayed:
                    made[waiting] = graph.node_copy(waiting, made.__getitem__)

        return copy_module(module, delayed | region_of.keys(), append)


def append_chunks(graph: Graph, region: ProductRegion, sizes: ChunkSizes, made: dict[Node, Node]) -> None:
    """Append a region in chunks. `made` has its sources; its results are added."""
    sums = None if sizes.windows is None else sums_by_windows(region)
    results = dict(_allocate_rows(graph, region.results, region))
    made |= results
    values = RowValues({}, {}, {}) if sums is None else _allocate_values(graph, region, sums, made)
    copied = {**results, **values.rows}
    total = region.rows.count
    copies: dict[Node, Node] = {}
    by_columns = [] if sums is not None else region.with_role(RowRole.COLUMN_SUM)
    column_sums = {node: ColumnSum(graph, node) for node in by_columns}
    for first in range(0, total, sizes.rows):
        chunk = ProductChunk(graph, region, made, first, min(sizes.rows, total - first), copies)
        for node, op in region.ops.items():
            if node in column_sums:
                chunk.add_columns(node, column_sums[node])
            elif sums is None or node not in sums.nodes:
                chunk.add(node, op)
                if node in copied:
                    chunk.copy_rows(node, copied[node])
                if node in values.maxima:
                    chunk.copy_statistics(node, values.maxima[node], values.logarithms[node])
    made |= {node: column_sum.total() for node, column_sum in column_sums.items()}
    if sums is not None and sizes.windows is not None:
        known = set(graph.nodes)
        windows = append_windows(graph, region, sizes.windows, made, values)
        made |= _concatenate(graph, region, windows, sizes.windows.separate)
        for node in graph.nodes:
            if node not in known:
                node.meta[BY_WINDOWS] = True


def _concatenate(
    graph: Graph, region: ProductRegion, windows: Iterable[tuple[Node, int, int, Node]], separate: bool
) -> dict[Node, Node]:
    whole: dict[Node, Node] = {}
    waiting: dict[Node, list[Node]] = {}
    for node, first, last, window in windows:
        if separate or region.ops[node].role is RowRole.COLUMN_SUM:
            waiting.setdefault(node, []).append(window)
            continue
        if node not in whole:
            with graph.inserting_before(window):
                whole[node] = _allocate(graph, node, list(value_of(node).shape))
        place = call_like(node, graph, aten.slice.Tensor, whole[node], 0, first, last)
        call_like(node, graph, aten.copy_.default, place, window)
    for node, tensors in waiting.items():
        dim = -1 if region.ops[node].role is RowRole.COLUMN_SUM else 0
        whole[node] = call_like(node, graph, aten.cat.default, tensors, dim)
    return whole


def _allocate_rows(graph: Graph, nodes: Iterable[Node], region: ProductRegion) -> Iterator[tuple[Node, Node]]:
    for node in nodes:
        if region.ops[node].role is RowRole.ROWS:
            yield node, _allocate(graph, node, list(value_of(node).shape), row_layout(value_of(node)))


def _allocate(graph: Graph, node: Node, shape: list[int], layout: torch.memory_format | None = None) -> Node:
    value = value_of(node)
    more = {} if layout in (None, torch.contiguous_format) else {"memory_format": layout}
    return call_like(node, graph, aten.empty.memory_format, shape, dtype=value.dtype, device=value.device, **more)


def _allocate_values(graph: Graph, region: ProductRegion, sums: WindowSums, made: Mapping[Node, Node]) -> RowValues:
    rows = {node: made[node] for node in sums.rows if node in made}
    rows |= dict(_allocate_rows(graph, (node for node in sums.rows if node not in made), region))
    maxima, logarithms = (
        {node: _allocate(graph, node, [value_of(node).shape[0], 1]) for node in sums.logarithms} for _ in range(2)
    )
    return RowValues(rows, maxima, logarithms)


@dataclass(frozen=True)
class RecomputeRows(Rewrite[TwoPasses]):
    """Recompute results of the first pass over a product's rows in the second.

    Neither pass then saves a tensor as large as the product.
    """

    name = "rows-again"
    source = "An op without effects gives the same bits whenever it runs on the same operands."
    chosen: tuple[TwoPasses, ...]

    def sites(self, module: GraphModule) -> Sequence[TwoPasses]:
        return self.chosen

    def apply(self, module: GraphModule, sites: Sequence[TwoPasses]) -> GraphModule:
        graph = Graph()
        made: dict[Node, Node] = {}
        passes = [_SecondPass(graph, site, made) for site in sites]
        second_of = {node: second for second in passes for node in second.site.second}
        for node in module.graph.nodes:
            second = second_of.get(node)
            made[node] = graph.node_copy(node, made.__getitem__ if second is None else second.operand)
            if second is not None:
                made[node].meta[SECOND_PASS] = second.site.product.name
        for node in reversed([node for site in sites for node in site.recomputed]):
            if not made[node].users:
                graph.erase_node(made[node])
        return graph_module(module, graph)


@dataclass(frozen=True, slots=True)
class _SecondPass:
    graph: Graph
    site: TwoPasses
    made: dict[Node, Node]
    copies: dict[Node, Node] = field(default_factory=dict[Node, Node])

    def operand(self, node: Node) -> Node:
        if node not in self.site.recomputed:
            return self.made[node]
        if node not in self.copies:
            args, kwargs = map_arguments(node, self.operand)
            name = f"{node.name}_again"
            self.copies[node] = self.graph.create_node("call_function", node.target, args, kwargs, name=name)
            self.copies[node].meta = {**origin_of(node), SECOND_PASS: self.site.product.name}
        return self.copies[node]
