"""Regions around large products (`ProductRegion`), reasons why a product has none (`Refusal`), and devices of chunks."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.chunks.rule import ChunkedOp, ProductRows, RowRole

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default)
"""Ops with large results of smaller operands."""
_MIN_BYTES = 1 << 20
LARGE_SHARE = 2
"""Tensors with at least `1 / LARGE_SHARE` of the elements of a product count as being as large as the product."""
SECOND_PASS = "second_pass_of"
"""Meta key of the nodes of a second pass over the rows of a product; the value is the name of the product."""


class ChunkDevices(Enum):
    """The devices on which chunks are allowed."""

    CPU = "the CPU, whose kernels were tested for equal bits"
    ALL = "all devices, for results equal up to rounding"

    def has(self, node: Node) -> bool:
        """Return whether the operands and results of a node are on these devices."""
        if self is ChunkDevices.ALL:
            return True
        leaves = pytree.tree_leaves([value_of(each) for each in (node, *node.all_input_nodes)])
        return all(leaf.device.type == "cpu" for leaf in leaves if isinstance(leaf, torch.Tensor))


def can_run(device: torch.device) -> bool:
    """Return whether this machine has a device; a program may be captured for one that it does not have."""
    here = torch.accelerator.current_accelerator(check_available=True)
    return device.type == "cpu" or (here is not None and here.type == device.type)


@dataclass(frozen=True, slots=True, eq=False)
class ProductRegion:
    """A product and the ops that consume it, up to tensors that are small or sums over its rows."""

    product: Node
    """The product, which is outside of the region if the program returns it or a tensor computed from it."""
    rows: ProductRows
    ops: dict[Node, ChunkedOp]
    """The nodes of the region in program order. The chunks replace the last one."""
    results: list[Node] = field(default_factory=list[Node])
    """Nodes that others read."""
    delayed: list[Node] = field(default_factory=list[Node])
    """Other nodes before the last of the region, which need its results."""

    @property
    def sources(self) -> list[Node]:
        """The nodes outside of the region that it reads."""
        read = dict.fromkeys(source for node in self.ops for source in node.all_input_nodes)
        return [source for source in read if source not in self.ops]

    def with_role(self, *roles: RowRole) -> list[Node]:
        """Return the nodes with one of some roles, in program order."""
        return [node for node, op in self.ops.items() if op.role in roles]


@dataclass(frozen=True, slots=True, eq=False)
class TwoPasses:
    """Two passes over the rows of a product, for nodes that need results of all rows first."""

    product: Node
    second: tuple[Node, ...]
    """The nodes of the second pass, in program order."""
    recomputed: tuple[Node, ...]
    """Nodes of the first pass that the second pass recomputes, in program order."""

    @property
    def reader_names(self) -> list[str]:
        """The names of the nodes that read recomputed nodes."""
        recomputed = set(self.recomputed)
        return [node.name for node in self.second if not recomputed.isdisjoint(node.all_input_nodes)]


OWN_ORDER = "sums over rows in its own order"
"""The reason if an op has a partial sum, so that chunks equal it up to rounding only."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A large product that is not computed in chunks, and the reason."""

    product: Node
    reason: str
    two_passes: TwoPasses | None = None
    """How recomputation makes chunks possible."""


def has_image_rows(product: Node) -> bool:
    """Return whether the rows of a product are images, which pass through a whole network."""
    return product.target is aten.convolution.default


def is_large_product(node: Node) -> bool:
    """Return whether a node is a large product with more elements than its row operand."""
    value = value_of(node)
    return (
        node.target in PRODUCTS
        and value.shape[0] > 1
        and value.numel() > elements_of(row_operand(node))
        and bytes_of(node) >= _MIN_BYTES
    )


def row_operand(product: Node) -> Node:
    """Return the operand of a product that has its rows."""
    operand: Any = product.args[1 if product.target is aten.addmm.default else 0]
    return operand


def row_layout(value: torch.Tensor) -> torch.memory_format | None:
    """Return the memory format of a tensor with one row after the other in memory; None for any other tensor."""
    formats = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
    return next((each for each in formats if value.is_contiguous(memory_format=each)), None)


def elements_of(node: Node) -> int:
    """Return the number of elements of all tensors of a node."""
    return sum(leaf.numel() for leaf in pytree.tree_leaves(value_of(node)) if isinstance(leaf, torch.Tensor))


def bytes_of(node: Node) -> int:
    """Return the bytes of the elements of a tensor."""
    value: Any = value_of(node)
    return value.numel() * value.element_size()
