"""What of a program can be done for some rows at a time: a large product and what is made of it, or why not."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.chunks.roles import RowPart, RowRole
from lowtide.frameworks.torch.rewrites.chunks.rows import ProductRows

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default)
"""What makes large results of smaller operands."""
_FEWEST_BYTES = 1 << 20
"""Smaller products need little, and are many."""
NEARLY = 2
"""What has at least so large a part of a product's numbers is as much of a burden as the product."""
SECOND_PASS = "second_pass_of"
"""The mark of nodes of a second pass over the rows of a product, by its name: they are no part of its first region."""


@dataclass(frozen=True, slots=True, eq=False)
class ProductRegion:
    """A product and what is computed of it, as far as that is as large or sums it up."""

    product: Node
    """The product itself, which is no part of the region where the program returns it, or what is made of it."""
    rows: ProductRows
    parts: dict[Node, RowPart]
    """All nodes in program order, and how each is done for some rows."""
    kept: list[Node] = field(default_factory=list[Node])
    """The nodes that others read."""
    later: list[Node] = field(default_factory=list[Node])
    """Other nodes before the last of the region, which need some of its results."""

    @property
    def nodes(self) -> list[Node]:
        """All nodes, in program order; the chunks stand where the last one stood."""
        return list(self.parts)

    def having(self, *roles: RowRole) -> list[Node]:
        """Return the nodes in which the rows lie in one of some ways, in program order."""
        return [node for node, part in self.parts.items() if part.role in roles]

    @property
    def shape(self) -> torch.Size:
        """As many rows as there are, and one."""
        return torch.Size((self.rows.count, 1))


@dataclass(frozen=True, slots=True, eq=False)
class TwoPasses:
    """Nodes that could be done for some rows at a time if what needs something of all rows came in a second pass."""

    product: Node
    """The product that both passes are over."""
    second: tuple[Node, ...]
    """The nodes of the second pass."""
    again: tuple[Node, ...]
    """What is as large as the product before, and would be computed again for them, the product with it or not; both
    in program order."""

    @property
    def readers(self) -> list[str]:
        """The names of the nodes that would read what is computed again."""
        again = set(self.again)
        return [node.name for node in self.second if not again.isdisjoint(node.all_input_nodes)]


IN_ITS_OWN_ORDER = "sums over all rows in an order of its own"
"""Why an op is not done for some rows at a time that could be, but for the order of a sum."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A large product that is left whole, and why."""

    product: Node
    reason: str
    passes: TwoPasses | None = None
    """How it can be cut all the same, for the time that it takes."""


def outside(region: ProductRegion) -> list[Node]:
    """Return the nodes that a region reads and that others make, each once."""
    sources = dict.fromkeys(source for node in region.parts for source in node.all_input_nodes)
    return [source for source in sources if source not in region.parts]


def is_of_images(product: Node) -> bool:
    """Tell whether the rows of a product are images, which go through a whole network."""
    return product.target is aten.convolution.default


def is_large(node: Node) -> bool:
    """Tell whether a product is large, and larger than the rows that it is made of."""
    value = value_of(node)
    return (
        node.target in PRODUCTS
        and value.shape[0] > 1
        and value.numel() > numbers_of(rows_in(node))
        and value.numel() * value.element_size() >= _FEWEST_BYTES
    )


def rows_in(product: Node) -> Node:
    """Return the factor that has a row for every row of a product."""
    row: Any = product.args[1 if product.target is aten.addmm.default else 0]
    return row


def layout_of(value: torch.Tensor) -> torch.memory_format | None:
    """Return how the numbers of a tensor lie, one row after the other; None where its rows do not."""
    formats = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
    return next((each for each in formats if value.is_contiguous(memory_format=each)), None)


def numbers_of(node: Node) -> int:
    """Return how many numbers a node stands for, of all its tensors."""
    return sum(leaf.numel() for leaf in pytree.tree_leaves(value_of(node)) if isinstance(leaf, torch.Tensor))
