"""One chunk of a product region, and column sums over chunks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals.nodes import map_arguments, value_of
from lowtide.frameworks.torch.internals.operators import schema_arguments
from lowtide.frameworks.torch.rewrites.chunks.product_region import ProductRegion
from lowtide.frameworks.torch.rewrites.chunks.rule import ChunkedOp, ProductRows, RowRole, SlicedRows
from lowtide.frameworks.torch.rewrites.rewrite import call_like

aten = torch.ops.aten
_ROWS, _BLOCK = 16, 256
"""PyTorch's kernel sums 16 rows, then sums of 256 rows, then all."""
_COLUMNS = 64
"""Columns after the last multiple fill no vector register, and are summed in another order."""


@dataclass(slots=True)
class ColumnSum:
    """The sum of each column over chunks, in the order of PyTorch's kernel."""

    graph: Graph
    node: Node
    _recent: list[Node] = field(default_factory=list[Node])
    _blocks: list[Node] = field(default_factory=list[Node])
    _last_columns: list[Node] = field(default_factory=list[Node])
    _count: int = 0

    def add(self, rows: Node, count: int) -> None:
        matrix = self._call(aten.view.default, rows, [count, self._width])
        if self._aligned < self._width:
            last = self._call(aten.slice.Tensor, matrix, 1, self._first_of_last, self._width)
            self._last_columns.append(self._call(aten.clone.default, last, memory_format=torch.contiguous_format))
        if self._aligned:
            first = 0
            for end in self._ends(count):
                stretch = self._call(aten.slice.Tensor, matrix, 0, first, end)
                self._add_stretch(self._call(aten.slice.Tensor, stretch, 1, 0, self._aligned), end - first)
                first = end

    def total(self) -> Node:
        self._close_block()
        columns = [self._sum(self._blocks)] if self._aligned else []
        if self._last_columns:
            last = self._sum(self._last_columns)
            columns.append(self._call(aten.slice.Tensor, last, 1, self._aligned - self._first_of_last, self._width))
        return self._call(aten.view.default, self._concatenate(columns, 1), list(value_of(self.node).shape))

    @property
    def _width(self) -> int:
        return value_of(self.node).numel()

    @property
    def _aligned(self) -> int:
        return self._width - self._width % _COLUMNS

    @property
    def _first_of_last(self) -> int:
        """The first copied column; matrices of few columns are summed in yet another order."""
        return max(0, self._aligned - _COLUMNS)

    def _ends(self, count: int) -> Iterator[int]:
        yield from range(_BLOCK - self._count % _BLOCK, count, _BLOCK)
        yield count

    def _add_stretch(self, rows: Node, count: int) -> None:
        in_sixteenths = 0 if self._count % _ROWS else count - count % _ROWS
        if in_sixteenths:
            first = self._call(aten.slice.Tensor, rows, 0, 0, in_sixteenths)
            grouped = self._call(aten.view.default, first, [in_sixteenths // _ROWS, _ROWS, self._aligned])
            self._recent.append(self._call(aten.sum.dim_IntList, grouped, [1]))
        if in_sixteenths < count:
            self._recent.append(self._sum([self._call(aten.slice.Tensor, rows, 0, in_sixteenths, count)]))
        self._count += count
        if self._count % _BLOCK == 0:
            self._close_block()

    def _close_block(self) -> None:
        if self._recent:
            self._blocks.append(self._sum(self._recent))
            self._recent = []

    def _sum(self, rows: Sequence[Node]) -> Node:
        return self._call(aten.sum.dim_IntList, self._concatenate(rows, 0), [0], True)

    def _concatenate(self, tensors: Sequence[Node], dim: int) -> Node:
        return tensors[0] if len(tensors) == 1 else self._call(aten.cat.default, list(tensors), dim)

    def _call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        return call_like(self.node, self.graph, target, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class ProductChunk:
    """The nodes of a region for one chunk."""

    graph: Graph
    region: ProductRegion
    made: dict[Node, Node]
    first: int
    count: int
    copies: dict[Node, Node]
    computed: dict[Node, Node] = field(default_factory=dict[Node, Node])
    slices: dict[tuple[Node, ProductRows | None], Node] = field(
        default_factory=dict[tuple[Node, ProductRows | None], Node]
    )

    def add(self, node: Node, op: ChunkedOp) -> None:
        if op.rows != op.operand_rows:
            self.computed[node] = self._sliced(node, op)
            return
        args, kwargs = map_arguments(node, lambda source: self._operand(source, op))
        if op.sizes is not None:
            args, kwargs = self._resized(node, op, op.sizes, args, kwargs)
        if op.role is RowRole.SUM and self.first:
            self._call(node, aten.addmm_.default, self.made[node], *args)
            return
        done = self.computed[node] = self._call(node, node.target, *args, **kwargs)
        if op.role is RowRole.PARTIAL_SUM and self.first:
            self._call(node, aten.add_.Tensor, self.made[node], done)
        elif op.role in (RowRole.SUM, RowRole.PARTIAL_SUM):
            self.made[node] = done

    def add_columns(self, node: Node, into: ColumnSum) -> None:
        source = _source_of(node)
        op = self.region.ops[node]
        shape = self._shape(op.operand_rows, value_of(source).shape)
        into.add(self._operand(source, op), math.prod(shape[:-1]))

    def copy_rows(self, node: Node, into: Node) -> None:
        rows = self._rows_of(self.region.ops[node].rows, value_of(node).shape, node, into)
        self._call(node, aten.copy_.default, rows, self.computed[node])

    def copy_statistics(self, node: Node, maxima: Node, logarithms: Node) -> None:
        """Append each row's maximum of a `log_softmax` operand, and the logarithm of its sum minus that."""
        given, done = self.computed[_source_of(node)], self.computed[node]
        shape = torch.Size((value_of(node).shape[0], 1))
        largest = self._call(node, aten.amax.default, given, [1], True)
        least = self._call(node, aten.neg.default, self._call(node, aten.amax.default, done, [1], True))
        for into, value in ((maxima, largest), (logarithms, least)):
            rows = self._rows_of(self.region.ops[node].rows, shape, node, into)
            self._call(node, aten.copy_.default, rows, value)

    def _operand(self, node: Node, op: ChunkedOp) -> Node:
        if node in self.computed:
            return self.computed[node]
        rows = op.operand_rows if node in op.by_rows else None
        if rows is None and node not in op.by_columns:
            return self.made[node]
        if (node, rows) not in self.slices:
            if rows is not None:
                source = self._with_adjacent_rows(node, rows)
                self.slices[node, rows] = self._rows_of(rows, value_of(node).shape, node, source)
            else:
                columns = self._range(op.operand_rows)
                self.slices[node, rows] = self._call(node, aten.slice.Tensor, self.made[node], 1, *columns)
        return self.slices[node, rows]

    def _with_adjacent_rows(self, node: Node, rows: ProductRows) -> Node:
        value = value_of(node)
        leading = rows.leading_dims(value.shape) or 0
        if all(value.stride(dim) == value.shape[dim + 1] * value.stride(dim + 1) for dim in range(leading - 1)):
            return self.made[node]
        if node not in self.copies:
            contiguous = torch.contiguous_format
            self.copies[node] = self._call(node, aten.clone.default, self.made[node], memory_format=contiguous)
        return self.copies[node]

    def _range(self, rows: ProductRows) -> tuple[int, int]:
        return rows.range_for(self.first, self.first + self.count)

    def _shape(self, rows: ProductRows, shape: torch.Size) -> list[int]:
        first, last = self._range(rows)
        return rows.chunk_shape(shape, last - first)

    def _rows_of(self, rows: ProductRows, shape: torch.Size, like: Node, tensor: Node) -> Node:
        flat, entries = rows.flat_shape(shape), rows.entries_per_row(shape)
        if flat != list(shape):
            tensor = self._call(like, aten.view.default, tensor, flat)
        first, last = self._range(rows)
        chunk = self._call(like, aten.slice.Tensor, tensor, 0, first * entries, last * entries)
        wanted = self._shape(rows, shape)
        return chunk if len(wanted) == len(flat) else self._call(like, aten.view.default, chunk, wanted)

    def _sliced(self, node: Node, op: ChunkedOp) -> Node:
        inner = op.rows.flat_shape(value_of(node).shape)[1:]
        first, last = self._range(op.operand_rows)
        given = self._call(node, aten.view.default, self._operand(_source_of(node), op), [last - first, *inner])
        stretches = list(self._stretches(node, op, given, inner))
        if not stretches:
            stretches.append(self._zeros(node, [0, *inner]))
        joined = stretches[0] if len(stretches) == 1 else self._call(node, aten.cat.default, stretches, 0)
        return self._call(node, aten.view.default, joined, self._shape(op.rows, value_of(node).shape))

    def _stretches(self, node: Node, op: ChunkedOp, given: Node, inner: Sequence[int]) -> Iterator[Node]:
        is_slice = isinstance(op.rows, SlicedRows) and op.rows.of == op.operand_rows
        rows = op.rows if is_slice else op.operand_rows
        at = 0
        for count, is_kept in rows.stretches(*self._range(rows.of)) if isinstance(rows, SlicedRows) else ():
            if is_kept:
                yield self._call(node, aten.slice.Tensor, given, 0, at, at + count)
            elif not is_slice:
                yield self._zeros(node, [count, *inner])
            at += count if is_kept or is_slice else 0

    def _zeros(self, like: Node, shape: Sequence[int]) -> Node:
        value = value_of(like)
        return self._call(like, aten.full.default, list(shape), 0, dtype=value.dtype, device=value.device)

    def _call(self, like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        return call_like(like, self.graph, target, *args, **kwargs)

    def _resized(
        self, node: Node, op: ChunkedOp, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        if name in kwargs:
            return args, {**kwargs, name: self._size(node, op, kwargs[name])}
        place = [argument.name for argument in schema_arguments(node.target)].index(name)
        return [self._size(node, op, value) if at == place else value for at, value in enumerate(args)], kwargs

    def _size(self, node: Node, op: ChunkedOp, size: Any) -> Any:
        if isinstance(size, int):
            first, last = self._range(op.rows)
            return last - first
        return self._shape(op.rows, value_of(node).shape)


def _source_of(node: Node) -> Node:
    (source,) = node.all_input_nodes
    return source
