"""One chunk of a region: all that it computes, for some rows of its product."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals.nodes import map_nodes, value_of
from lowtide.frameworks.torch.internals.operators import schema_arguments
from lowtide.frameworks.torch.rewrites.chunks.column_sums import ColumnSum
from lowtide.frameworks.torch.rewrites.chunks.products import ProductRegion
from lowtide.frameworks.torch.rewrites.chunks.roles import RowPart, RowRole
from lowtide.frameworks.torch.rewrites.chunks.rows import ProductRows, SlicedRows
from lowtide.frameworks.torch.rewrites.rewrite import call_like

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class RowChunk:
    """The nodes that do a region for some rows of its product."""

    graph: Graph
    region: ProductRegion
    made: dict[Node, Node]
    first: int
    count: int
    copies: dict[Node, Node]
    """Contiguous copies of what others make, for all chunks of the region."""
    computed: dict[Node, Node] = field(default_factory=dict[Node, Node])
    cut: dict[tuple[Node, ProductRows | None], Node] = field(
        default_factory=dict[tuple[Node, ProductRows | None], Node]
    )

    def add(self, node: Node, part: RowPart) -> None:
        """Append what a node does to the rows of this chunk."""
        if part.rows != part.taken:
            self.computed[node] = self._sliced(node, part)
            return
        args, kwargs = map_nodes((node.args, dict(node.kwargs)), lambda source: self._operand(source, part))
        if part.sizes is not None:
            args, kwargs = self._resized(node, part, part.sizes, args, kwargs)
        if part.role is RowRole.SUM and self.first:
            self._call(node, aten.addmm_.default, self.made[node], *args)
            return
        done = self.computed[node] = self._call(node, node.target, *args, **kwargs)
        if part.role is RowRole.ADDED and self.first:
            self._call(node, aten.add_.Tensor, self.made[node], done)
        elif part.role in (RowRole.SUM, RowRole.ADDED):
            self.made[node] = done

    def add_columns(self, node: Node, into: ColumnSum) -> None:
        """Append what adds the rows of this chunk to a sum of columns."""
        source = _source_of(node)
        part = self.region.parts[node]
        into.add(self._operand(source, part), math.prod(self._shape(part.taken, value_of(source).shape)[:-1]))

    def keep(self, node: Node, room: Node, done: Node) -> None:
        """Append the copy of a small result to its place among all rows."""
        self._call(
            node,
            aten.copy_.default,
            self._rows_of(self.region.parts[node].rows, value_of(node).shape, node, room),
            done,
        )

    def keep_statistics(self, node: Node, maxima: Node, sums: Node) -> None:
        """Append what a row of a `log_softmax` is known by: its maximum, and the logarithm of the sum less that."""
        given, done = self.computed[_source_of(node)], self.computed[node]
        shape = torch.Size((value_of(node).shape[0], 1))
        largest = self._call(node, aten.amax.default, given, [1], True)
        least = self._call(node, aten.neg.default, self._call(node, aten.amax.default, done, [1], True))
        for room, value in ((maxima, largest), (sums, least)):
            place = self._rows_of(self.region.parts[node].rows, shape, node, room)
            self._call(node, aten.copy_.default, place, value)

    def _operand(self, node: Node, part: RowPart) -> Node:
        if node in self.computed:
            return self.computed[node]
        rows = part.taken if node in part.by_rows else None
        if rows is None and node not in part.by_columns:
            return self.made[node]
        if (node, rows) not in self.cut:
            if rows is not None:
                self.cut[node, rows] = self._rows_of(rows, value_of(node).shape, node, self._in_stretches(node, rows))
            else:
                self.cut[node, rows] = self._call(node, aten.slice.Tensor, self.made[node], 1, *self._among(part.taken))
        return self.cut[node, rows]

    def _in_stretches(self, node: Node, rows: ProductRows) -> Node:
        """Return a tensor that others make, or a copy in which the rows of a chunk are one stretch."""
        value = value_of(node)
        counted = rows.leading(value.shape) or 0
        if all(value.stride(dim) == value.shape[dim + 1] * value.stride(dim + 1) for dim in range(counted - 1)):
            return self.made[node]
        if node not in self.copies:
            contiguous = torch.contiguous_format
            self.copies[node] = self._call(node, aten.clone.default, self.made[node], memory_format=contiguous)
        return self.copies[node]

    def _among(self, rows: ProductRows) -> tuple[int, int]:
        """Return which rows of a kind are those of this chunk: from one, up to another."""
        return rows.among(self.first, self.first + self.count)

    def _shape(self, rows: ProductRows, shape: torch.Size) -> list[int]:
        """Return the shape that this chunk has of a tensor of some shape."""
        first, last = self._among(rows)
        return rows.of_chunk(shape, last - first)

    def _rows_of(self, rows: ProductRows, shape: torch.Size, node: Node, whole: Node) -> Node:
        """Return a view of this chunk's rows of a tensor of some shape."""
        flat, share = rows.flat(shape), rows.share(shape)
        if flat != list(shape):
            whole = self._call(node, aten.view.default, whole, flat)
        first, last = self._among(rows)
        cut = self._call(node, aten.slice.Tensor, whole, 0, first * share, last * share)
        wanted = self._shape(rows, shape)
        return cut if len(wanted) == len(flat) else self._call(node, aten.view.default, cut, wanted)

    def _sliced(self, node: Node, part: RowPart) -> Node:
        """Append a slice that takes some rows, or its gradient, which is zero in all others."""
        inner = part.rows.flat(value_of(node).shape)[1:]
        first, last = self._among(part.taken)
        given = self._call(node, aten.view.default, self._operand(_source_of(node), part), [last - first, *inner])
        if isinstance(part.rows, SlicedRows) and part.rows.of == part.taken:
            parts = list(self._kept(node, part.rows, given))
        else:
            parts = list(self._between_zeros(node, part, given, inner))
        if not parts:
            parts.append(self._zeros(node, [0, *inner]))
        joined = parts[0] if len(parts) == 1 else self._call(node, aten.cat.default, parts, 0)
        return self._call(node, aten.view.default, joined, self._shape(part.rows, value_of(node).shape))

    def _kept(self, node: Node, rows: SlicedRows, given: Node) -> Iterator[Node]:
        at = 0
        for count, is_kept in rows.stretches(*self._among(rows.of)):
            if is_kept:
                yield self._call(node, aten.slice.Tensor, given, 0, at, at + count)
            at += count

    def _between_zeros(self, node: Node, part: RowPart, given: Node, inner: Sequence[int]) -> Iterator[Node]:
        at = 0
        rows = part.taken
        for count, is_kept in rows.stretches(*self._among(part.rows)) if isinstance(rows, SlicedRows) else ():
            if is_kept:
                yield self._call(node, aten.slice.Tensor, given, 0, at, at + count)
                at += count
            else:
                yield self._zeros(node, [count, *inner])

    def _zeros(self, like: Node, shape: Sequence[int]) -> Node:
        value = value_of(like)
        return self._call(like, aten.full.default, list(shape), 0, dtype=value.dtype, device=value.device)

    def _call(self, like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        return call_like(like, self.graph, target, *args, **kwargs)

    def _resized(
        self, node: Node, part: RowPart, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return arguments with the shape of the chunk, or its rows, in place of those of the whole."""
        if name in kwargs:
            return args, {**kwargs, name: self._size(node, part, kwargs[name])}
        place = [argument.name for argument in schema_arguments(node.target)].index(name)
        return [self._size(node, part, value) if at == place else value for at, value in enumerate(args)], kwargs

    def _size(self, node: Node, part: RowPart, whole: Any) -> Any:
        if isinstance(whole, int):
            first, last = self._among(part.rows)
            return last - first
        return self._shape(part.rows, value_of(node).shape)


def _source_of(node: Node) -> Node:
    (source,) = node.all_input_nodes
    return source
