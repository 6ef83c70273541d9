"""Sums over all rows, column by column, of what is there for some rows at a time: the gradient of a head's bias."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.rewrite import call_like

aten = torch.ops.aten
_ROWS, _BLOCK = 16, 256
"""PyTorch's kernel adds up so many rows, so many of these sums to a block's, and blocks in the same way."""
_COLUMNS = 64
"""Columns beyond a multiple of so many fill no vector registers, and are added up in another order."""


@dataclass(slots=True)
class ColumnSum:
    """One such sum in the making, in the order in which the kernel adds up all rows at once.

    Every block of rows is added up from the sums of its sixteenths as soon as it is there; then all blocks. The last
    columns are kept of every row, and added up at the end.
    """

    graph: Graph
    node: Node
    """The sum of the program as it was."""
    _recent: list[Node] = field(default_factory=list[Node])
    """Sums of rows of the block that is not complete."""
    _blocks: list[Node] = field(default_factory=list[Node])
    _last_columns: list[Node] = field(default_factory=list[Node])
    _count: int = 0
    """How many rows are there."""

    def add(self, rows: Node, count: int) -> None:
        """Append what adds the next rows; `rows` has as many columns as the sum has numbers."""
        matrix = self._call(aten.view.default, rows, [count, self._width])
        if self._aligned < self._width:
            last = self._call(aten.slice.Tensor, matrix, 1, self._first_of_last, self._width)
            self._last_columns.append(self._call(aten.clone.default, last, memory_format=torch.contiguous_format))
        if self._aligned:
            first = 0
            for end in self._ends(count):
                part = self._call(aten.slice.Tensor, matrix, 0, first, end)
                self._add_part(self._call(aten.slice.Tensor, part, 1, 0, self._aligned), end - first)
                first = end

    def total(self) -> Node:
        """Append what adds up all that was given, and return it."""
        self._close_block()
        parts = [self._summed(self._blocks)] if self._aligned else []
        if self._last_columns:
            last = self._summed(self._last_columns)
            parts.append(self._call(aten.slice.Tensor, last, 1, self._aligned - self._first_of_last, self._width))
        return self._call(aten.view.default, self._joined(parts, 1), list(value_of(self.node).shape))

    @property
    def _width(self) -> int:
        return value_of(self.node).numel()

    @property
    def _aligned(self) -> int:
        """The columns that fill vector registers."""
        return self._width - self._width % _COLUMNS

    @property
    def _first_of_last(self) -> int:
        """The column from which on the last ones are kept: a matrix of few columns is added up in yet another order."""
        return max(0, self._aligned - _COLUMNS)

    def _ends(self, count: int) -> Iterator[int]:
        """Yield where the next rows reach the end of a block, and where they end."""
        yield from range(_BLOCK - self._count % _BLOCK, count, _BLOCK)
        yield count

    def _add_part(self, rows: Node, count: int) -> None:
        """Add rows of one block."""
        in_sixteenths = 0 if self._count % _ROWS else count - count % _ROWS
        if in_sixteenths:
            first = self._call(aten.slice.Tensor, rows, 0, 0, in_sixteenths)
            cut = self._call(aten.view.default, first, [in_sixteenths // _ROWS, _ROWS, self._aligned])
            self._recent.append(self._call(aten.sum.dim_IntList, cut, [1]))
        if in_sixteenths < count:
            self._recent.append(self._summed([self._call(aten.slice.Tensor, rows, 0, in_sixteenths, count)]))
        self._count += count
        if self._count % _BLOCK == 0:
            self._close_block()

    def _close_block(self) -> None:
        if self._recent:
            self._blocks.append(self._summed(self._recent))
            self._recent = []

    def _summed(self, parts: Sequence[Node]) -> Node:
        return self._call(aten.sum.dim_IntList, self._joined(parts, 0), [0], True)

    def _joined(self, parts: Sequence[Node], dim: int) -> Node:
        return parts[0] if len(parts) == 1 else self._call(aten.cat.default, list(parts), dim)

    def _call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        return call_like(self.node, self.graph, target, *args, **kwargs)
