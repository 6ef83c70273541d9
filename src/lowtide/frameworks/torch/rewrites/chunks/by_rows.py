"""A product for some rows at a time: large results live as chunks, small ones in slices, sums are added to."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import map_nodes, value_of
from lowtide.frameworks.torch.internals.operators import schema_arguments
from lowtide.frameworks.torch.rewrites.chunks.column_sums import ColumnSum
from lowtide.frameworks.torch.rewrites.chunks.parts import RowPart, RowRole
from lowtide.frameworks.torch.rewrites.chunks.products import ProductRegion
from lowtide.frameworks.torch.rewrites.chunks.windows import Kept, Sums, sums_by_windows, write_windows
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """How a region is cut."""

    rows: int
    """The rows of a chunk."""
    classes: int | None = None
    """The classes of a window; None where sums over rows are added to, chunk by chunk."""
    in_pieces: bool = False
    """Whether sums stay in the pieces that windows make, for updates that take them one by one."""


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
    sums = None if sizes.classes is None else sums_by_windows(region)
    kept = dict(_empty(graph, region.kept, region))
    made |= kept
    rows, maxima, logarithms = ({}, {}, {}) if sums is None else _saved(graph, region, sums, made)
    written = kept | rows
    total = region.rows.count
    adding = {} if sums is not None else {node: ColumnSum(graph, node) for node in region.having(RowRole.COLUMN_SUM)}
    for first in range(0, total, sizes.rows):
        chunk = _RowChunk(graph, region, made, first, min(sizes.rows, total - first))
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
    if sums is not None and sizes.classes is not None:
        windows = write_windows(graph, region, sums, sizes.classes, made, Kept(rows, maxima, logarithms))
        made |= _put_together(graph, region, windows, sizes.in_pieces)


def _put_together(
    graph: Graph, region: ProductRegion, windows: Iterable[tuple[Node, Node]], in_pieces: bool
) -> dict[Node, Node]:
    """Append what puts together the parts of each sum, and return it.

    That is room, to which each part is copied as soon as it is there. Pieces, and the small sums of columns, wait for
    the last one.
    """
    rooms: dict[Node, Node] = {}
    ends: dict[Node, int] = {}
    waiting: dict[Node, list[Node]] = {}
    for node, part in windows:
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
            yield node, _room(graph, node, list(value_of(node).shape))


def _room(graph: Graph, node: Node, shape: list[int]) -> Node:
    value = value_of(node)
    return call_like(node, graph, aten.empty.memory_format, shape, dtype=value.dtype, device=value.device)


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


@dataclass(frozen=True, slots=True)
class _RowChunk:
    graph: Graph
    region: ProductRegion
    made: dict[Node, Node]
    first: int
    count: int
    computed: dict[Node, Node] = field(default_factory=dict[Node, Node])
    cut: dict[tuple[Node, bool], Node] = field(default_factory=dict[tuple[Node, bool], Node])

    def add(self, node: Node, part: RowPart) -> None:
        """Append what a node does to the rows of this chunk."""
        args, kwargs = map_nodes((node.args, dict(node.kwargs)), lambda source: self._operand(source, part))
        if part.sizes is not None:
            args, kwargs = self._resized(node, part.sizes, args, kwargs)
        if part.role is RowRole.SUM and self.first:
            self._call(node, aten.addmm_.default, self.made[node], *args)
            return
        done = self.computed[node] = self._call(node, node.target, *args, **kwargs)
        if part.role is RowRole.SUM:
            self.made[node] = done

    def add_columns(self, node: Node, into: ColumnSum) -> None:
        """Append what adds the rows of this chunk to a sum of columns."""
        source = _source_of(node)
        rows = self._operand(source, self.region.parts[node])
        into.add(rows, math.prod(self.region.rows.of_chunk(value_of(source).shape, self.count)[:-1]))

    def keep(self, node: Node, room: Node, done: Node) -> None:
        """Append the copy of a small result to its place among all rows."""
        self._call(node, aten.copy_.default, self._rows_of(value_of(node).shape, node, room), done)

    def keep_statistics(self, node: Node, maxima: Node, sums: Node) -> None:
        """Append what a row of a `log_softmax` is known by: its maximum, and the logarithm of the sum less that."""
        given, done = self.computed[_source_of(node)], self.computed[node]
        shape = torch.Size((value_of(node).shape[0], 1))
        largest = self._call(node, aten.amax.default, given, [1], True)
        least = self._call(node, aten.neg.default, self._call(node, aten.amax.default, done, [1], True))
        for room, value in ((maxima, largest), (sums, least)):
            self._call(node, aten.copy_.default, self._rows_of(shape, node, room), value)

    def _operand(self, node: Node, part: RowPart) -> Node:
        if node in self.computed:
            return self.computed[node]
        by_rows, by_columns = node in part.by_rows, node in part.by_columns
        if not by_rows and not by_columns:
            return self.made[node]
        if (node, by_rows) not in self.cut:
            whole = self.made[node]
            last = self.first + self.count
            if by_rows:
                self.cut[node, by_rows] = self._rows_of(value_of(node).shape, node, whole)
            else:
                self.cut[node, by_rows] = self._call(node, aten.slice.Tensor, whole, 1, self.first, last)
        return self.cut[node, by_rows]

    def _rows_of(self, shape: torch.Size, node: Node, whole: Node) -> Node:
        """Return a view of this chunk's rows of a tensor of some shape."""
        rows = self.region.rows
        flat, share = rows.flat(shape), rows.share(shape)
        if flat != list(shape):
            whole = self._call(node, aten.view.default, whole, flat)
        last = (self.first + self.count) * share
        cut = self._call(node, aten.slice.Tensor, whole, 0, self.first * share, last)
        wanted = rows.of_chunk(shape, self.count)
        return cut if len(wanted) == len(flat) else self._call(node, aten.view.default, cut, wanted)

    def _call(self, like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        return call_like(like, self.graph, target, *args, **kwargs)

    def _resized(
        self, node: Node, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return arguments with the shape of the chunk in place of that of the whole."""
        sizes = self.region.rows.of_chunk(value_of(node).shape, self.count)
        if name in kwargs:
            return args, {**kwargs, name: sizes}
        place = [argument.name for argument in schema_arguments(node.target)].index(name)
        return [sizes if at == place else value for at, value in enumerate(args)], kwargs


def _source_of(node: Node) -> Node:
    (source,) = node.all_input_nodes
    return source
