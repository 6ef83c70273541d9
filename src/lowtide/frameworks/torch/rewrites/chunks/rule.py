"""The interface of rules (`RuleCall`, `ChunkedOp`), and a region's rows (`ProductRows`)."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, cast

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import schema_arguments
from lowtide.frameworks.torch.reading.effects import arguments_by_name


@dataclass(frozen=True, slots=True)
class ProductRows:
    """The number of rows of a region. Each row of a tensor is one stretch of memory, in order."""

    count: int

    def range_for(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of these rows within rows `first` to `last` of the product."""
        return first, last

    def leading_dims(self, shape: Sequence[int]) -> int | None:
        """Return how many leading dimensions index rows, or None without rows."""
        product = 1
        for place, size in enumerate(shape):
            product *= size
            if product and product % self.count == 0:
                return place + 1
        return None

    def flat_shape(self, shape: Sequence[int]) -> list[int]:
        leading = self._known_dims(shape)
        return [math.prod(shape[:leading]), *shape[leading:]]

    def chunk_shape(self, shape: Sequence[int], rows: int) -> list[int]:
        leading = self._known_dims(shape)
        first, *rest = self.flat_shape(shape)
        return [*[1] * (leading - 1), first // self.count * rows, *rest]

    def entries_per_row(self, shape: Sequence[int]) -> int:
        return self.flat_shape(shape)[0] // self.count

    def match(self, operand: Sequence[int], result: Sequence[int]) -> bool:
        leading = self.leading_dims(result)
        return leading is not None and len(operand) == len(result) and operand[:leading] == result[:leading]

    def are_broadcast(self, operand: Sequence[int], result: Sequence[int]) -> bool:
        inner = len(result) - self._known_dims(result)
        return all(size == 1 for size in operand[: max(0, len(operand) - inner)])

    def _known_dims(self, shape: Sequence[int]) -> int:
        leading = self.leading_dims(shape)
        if leading is None:
            raise ValueError(f"a tensor of shape {list(shape)} does not have {self.count} rows")
        return leading


_UNSET = ProductRows(0)


@dataclass(frozen=True, slots=True)
class SlicedRows(ProductRows):
    """Rows of a slice: those between two positions of each sequence."""

    of: ProductRows
    length: int
    """Rows of a sequence before the slice."""
    start: int
    stop: int

    def range_for(self, first: int, last: int) -> tuple[int, int]:
        first, last = self.of.range_for(first, last)
        return self._rows_before(first), self._rows_before(last)

    def stretches(self, first: int, last: int) -> Iterator[tuple[int, bool]]:
        """Yield stretches of rows before the slice: length, and whether the slice has them."""
        while first < last:
            place = first % self.length
            is_kept = self.start <= place < self.stop
            end = self.stop if is_kept else self.start if place < self.start else self.length
            count = min(last - first, end - place)
            yield count, is_kept
            first += count

    def _rows_before(self, row: int) -> int:
        sequences, place = divmod(row, self.length)
        kept = self.stop - self.start
        return sequences * kept + min(max(place - self.start, 0), kept)


class RowRole(Enum):
    """How the result of an op depends on the rows of a region."""

    ROWS = "has the rows, one after the other"
    COLUMNS = "has the rows as columns of a matrix"
    SUM = "a matrix product that sums over rows"
    COLUMN_SUM = "the sum over rows of each column"
    PARTIAL_SUM = "a sum over rows, to which chunks add in any order"


SUMS = (RowRole.SUM, RowRole.COLUMN_SUM, RowRole.PARTIAL_SUM)


@dataclass(frozen=True, slots=True)
class ChunkedOp:
    """How to compute an op for one chunk."""

    role: RowRole
    by_rows: frozenset[Node] = field(default_factory=frozenset[Node])
    by_columns: frozenset[Node] = field(default_factory=frozenset[Node])
    """Operands with rows as columns."""
    sizes: str | None = None
    """The argument with the result's shape, or its number of rows."""
    partial_sums: frozenset[int] = field(default_factory=frozenset[int])
    operand_rows: ProductRows = _UNSET
    rows: ProductRows = _UNSET
    """The result's rows, which differ for a slice and its gradient."""

    @property
    def has_partial_sum(self) -> bool:
        return self.role is RowRole.PARTIAL_SUM or bool(self.partial_sums)

    def with_rows(self, rows: ProductRows) -> "ChunkedOp":
        """Return the same with these rows, unless the rule has set others."""
        return self if self.rows != _UNSET else replace(self, operand_rows=rows, rows=rows)


ChunkedOps = Mapping[Node, ChunkedOp]


def normalize_dims(dims: Any, rank: int) -> tuple[int, ...] | None:
    """Return dimensions as non-negative integers, in the given order.

    Returns None if there are none, or one is out of range.
    """
    given = cast("Sequence[Any]", dims) if isinstance(dims, list | tuple) else (dims,)
    if not given or not all(isinstance(dim, int) and -rank <= dim < rank for dim in given):
        return None
    return tuple(int(dim) % rank for dim in given)


def argument_of(node: Node, name: str) -> Any:
    given = arguments_by_name(node)
    if name in given:
        return given[name]
    return next((each.default_value for each in schema_arguments(node.target) if each.name == name), None)


@dataclass(frozen=True, slots=True)
class RuleCall:
    """A call of an op, passed to the rule of the op."""

    node: Node
    given: Mapping[str, Any]
    ops: ChunkedOps
    rows: ProductRows

    def role(self, operand: Any) -> RowRole | None:
        return self.ops[operand].role if isinstance(operand, Node) and operand in self.ops else None

    def shape(self, operand: Any) -> torch.Size:
        return value_of(operand).shape

    @property
    def result(self) -> torch.Size:
        return value_of(self.node).shape

    def dims(self, name: str, rank: int) -> tuple[int, ...] | None:
        return normalize_dims(argument_of(self.node, name), rank)

    def are_inner(self, dims: Any, shape: Sequence[int]) -> bool:
        """Return whether a tensor has rows not indexed by `dims`."""
        leading, known = self.rows.leading_dims(shape), normalize_dims(dims, len(shape))
        return leading is not None and known is not None and min(known) >= leading

    def keeps_rows(self, operand: str, *names: str) -> bool:
        """Return whether the dimensions in some arguments index no rows of an operand."""
        shape = self.shape(self.given[operand])
        return all(self.are_inner(argument_of(self.node, name), shape) for name in names)

    def row_wise(self, *operands: str, sizes: str | None = None, unread: str = "") -> ChunkedOp | None:
        """Return the op with these operands by rows, or None if they have no rows.

        No other operand may be in chunks, except `unread`.
        """
        by_rows = [self.given[name] for name in operands if isinstance(self.given.get(name), Node)]
        others = [node for node in self.node.all_input_nodes if node not in by_rows]
        if any(node in self.ops and node is not self.given.get(unread) for node in others) or any(
            self.role(node) not in (None, RowRole.ROWS) for node in by_rows
        ):
            return None
        if any(self.rows.leading_dims(self.shape(node)) is None for node in by_rows):
            return None
        return ChunkedOp(RowRole.ROWS, frozenset(by_rows), sizes=sizes)


Rule = Callable[[RuleCall], ChunkedOp | None]


def only_if(condition: Callable[[RuleCall], bool], rule: Rule) -> Rule:
    return lambda call: rule(call) if condition(call) else None


def along(*operands: str, dims: tuple[str, ...] = ("dim",)) -> Rule:
    """Return the rule of an op along some dimensions, which must not index rows."""
    return lambda call: call.row_wise(*operands) if call.keeps_rows(operands[0], *dims) else None
