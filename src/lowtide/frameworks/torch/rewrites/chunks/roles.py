"""How the rows of a product lie in what ops compute, and what a rule for an op is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.chunks.rows import NO_ROWS, ProductRows


class RowRole(Enum):
    """How the rows of a product lie in what an op computes."""

    ROWS = "one after the other"
    COLUMNS = "as columns of a matrix"
    SUM = "summed by a product"
    COLUMN_SUM = "added up, every column alone"
    ADDED = "added up, as what chunks give of it may be in any order"


@dataclass(frozen=True, slots=True)
class RowPart:
    """How to do an op for some rows."""

    role: RowRole
    by_rows: frozenset[Node] = field(default_factory=frozenset[Node])
    """The operands that have the rows."""
    by_columns: frozenset[Node] = field(default_factory=frozenset[Node])
    """The operands that have them as columns."""
    sizes: str | None = None
    """The argument that is the shape of the result, or counts the rows."""
    added: frozenset[int] = field(default_factory=frozenset[int])
    """Which of several results are added up over all rows."""
    taken: ProductRows = NO_ROWS
    """The rows of the operands."""
    rows: ProductRows = NO_ROWS
    """The rows of the result, which are others where it is a slice, or the gradient of one."""

    @property
    def adds_up(self) -> bool:
        """Whether chunks make something of it that is right once it is added up, in another order than the whole's."""
        return self.role is RowRole.ADDED or bool(self.added)


SUMS = (RowRole.SUM, RowRole.COLUMN_SUM, RowRole.ADDED)
"""How rows lie in what sums them up."""
Roles = Mapping[Node, RowPart]


@dataclass(frozen=True, slots=True)
class PartCall:
    """An op whose rule is asked, and what is known of its operands."""

    node: Node
    given: Mapping[str, Any]
    roles: Roles
    rows: ProductRows

    def role(self, operand: Any) -> RowRole | None:
        """Return how an operand has the rows that are being cut; None where it comes from elsewhere."""
        return self.roles[operand].role if isinstance(operand, Node) and operand in self.roles else None

    def shape(self, operand: Any) -> torch.Size:
        """Return the shape of an operand."""
        return value_of(operand).shape

    @property
    def result(self) -> torch.Size:
        """The shape of the result."""
        return value_of(self.node).shape

    def has_rows(self, name: str) -> bool:
        """Tell whether an operand's rows lie one after the other."""
        operand = self.given[name]
        role = self.role(operand)
        return role is RowRole.ROWS or (role is None and self.rows.leading(self.shape(operand)) is not None)

    def keeps(self, name: str, dims: Sequence[int]) -> bool:
        """Tell whether dimensions of an operand are none of those that count rows."""
        shape = self.shape(self.given[name])
        leading = self.rows.leading(shape)
        return leading is not None and all(dim % len(shape) >= leading for dim in dims)

    def part(self, *names: str, sizes: str | None = None, unread: str = "") -> RowPart | None:
        """Return what does each row alone with some operands that have the rows, where that is so."""
        operands = [self.given[name] for name in names if isinstance(self.given.get(name), Node)]
        others = [node for node in self.node.all_input_nodes if node not in operands]
        if any(node in self.roles and node is not self.given.get(unread) for node in others) or any(
            self.role(node) not in (None, RowRole.ROWS) for node in operands
        ):
            return None
        if any(self.rows.leading(self.shape(node)) is None for node in operands):
            return None
        return RowPart(RowRole.ROWS, frozenset(operands), sizes=sizes)
