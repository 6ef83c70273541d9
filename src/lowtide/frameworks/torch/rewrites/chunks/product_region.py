"""Regions around large products, and reasons for having none."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals.absent_cuda import is_cuda_absent
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.pytree import tensors_in
from lowtide.frameworks.torch.rewrites.chunks.rule import ChunkedOp, ProductRows, RowRole

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default)
_MIN_BYTES = 1 << 20
LARGE_SHARE = 2
"""Tensors with at least `1 / LARGE_SHARE` of a product's elements are large."""
SECOND_PASS = "second_pass_of"
"""Meta key of second-pass nodes, with the product's name."""


class ChunkDevices(Enum):
    """Devices on which chunks are allowed."""

    CPU = "the CPU, whose kernels were tested for equal bits"
    ALL = "all devices, for results equal up to rounding"

    def has(self, node: Node) -> bool:
        if self is ChunkDevices.ALL:
            return True
        tensors = tensors_in([value_of(each) for each in (node, *node.all_input_nodes)])
        return all(tensor.device.type == "cpu" for tensor in tensors)


def can_run(device: torch.device) -> bool:
    if device.type == "cuda" and is_cuda_absent():
        return False
    here = torch.accelerator.current_accelerator(check_available=True)
    return device.type == "cpu" or (here is not None and here.type == device.type)


@dataclass(frozen=True, slots=True, eq=False)
class ProductRegion:
    """A product and its consumers, up to small tensors and sums over rows."""

    product: Node
    """Outside of the region if the program returns it or a tensor computed from it."""
    rows: ProductRows
    ops: dict[Node, ChunkedOp]
    """In program order; chunks replace the last."""
    results: list[Node] = field(default_factory=list[Node])
    delayed: list[Node] = field(default_factory=list[Node])
    """Other nodes before the last that need its results."""

    @property
    def sources(self) -> list[Node]:
        read = dict.fromkeys(source for node in self.ops for source in node.all_input_nodes)
        return [source for source in read if source not in self.ops]

    def with_role(self, *roles: RowRole) -> list[Node]:
        return [node for node, op in self.ops.items() if op.role in roles]


@dataclass(frozen=True, slots=True, eq=False)
class TwoPasses:
    """Two passes over a product's rows. The second needs results of all rows."""

    product: Node
    second: tuple[Node, ...]
    recomputed: tuple[Node, ...]

    @property
    def reader_names(self) -> list[str]:
        recomputed = set(self.recomputed)
        return [node.name for node in self.second if not recomputed.isdisjoint(node.all_input_nodes)]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A large product that is not in chunks."""

    product: Node
    reason: str
    has_own_order: bool = False
    """Whether the reason is a sum over rows in another order, which rounding would allow."""
    two_passes: TwoPasses | None = None


def has_image_rows(product: Node) -> bool:
    return product.target is aten.convolution.default


def is_large_product(node: Node) -> bool:
    """Return whether a product is large, and larger than its row operand or that operand's source."""
    if node.target not in PRODUCTS or value_of(node).shape[0] == 1 or bytes_of(node) < _MIN_BYTES:
        return False
    return elements_of(node) > elements_of(row_operand(node)) or (has_image_rows(node) and _is_of_enlarged(node))


def _is_of_enlarged(product: Node) -> bool:
    """Return whether ops such as upsampling enlarge a product's images."""
    node = row_operand(product)
    while node.op == "call_function" and node.target not in PRODUCTS:
        source = max(node.all_input_nodes, key=elements_of, default=None)
        if source is None:
            return False
        if elements_of(source) * LARGE_SHARE <= elements_of(node):
            return True
        node = source
    return False


def row_operand(product: Node) -> Node:
    operand: Any = product.args[1 if product.target is aten.addmm.default else 0]
    return operand


def row_layout(value: torch.Tensor) -> torch.memory_format | None:
    """Return the memory format in which rows follow each other, or None."""
    formats = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
    return next((each for each in formats if value.is_contiguous(memory_format=each)), None)


def elements_of(node: Node) -> int:
    return sum(tensor.numel() for tensor in tensors_in(value_of(node)))


def bytes_of(node: Node) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(value_of(node)))
