"""The gradient of a product's matrix for some classes at a time: their columns are made again from what rows keep."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals.nodes import map_nodes, value_of
from lowtide.frameworks.torch.internals.operators import op_name
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.chunks.parts import SAME, VIEWS
from lowtide.frameworks.torch.rewrites.chunks.products import ProductRegion
from lowtide.frameworks.torch.rewrites.chunks.roles import SUMS, RowPart, RowRole
from lowtide.frameworks.torch.rewrites.rewrite import call_like

aten = torch.ops.aten
_ON_EITHER_SIDE = 16
"""So many classes on either side of a window are computed with it: those next to it stand for all others."""
_IGNORED = -100
_SLICES = ("slice", "slice_backward")


@dataclass(frozen=True, slots=True)
class Windows:
    """How the sums over rows of a region are made."""

    classes: int
    """The classes of a window."""
    in_pieces: bool = False
    """Whether sums stay in the pieces that windows make, for updates that take them one by one."""
    at_once: int | None = None
    """How many rows are summed at once, and added to the sum of those before; None for all rows.

    A BLAS sums many rows of a large matrix block by block, and where it has several threads, those of a small one in
    other blocks.
    """


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums over rows of a region that are made by windows, and what is needed of every row for that."""

    nodes: dict[Node, RowPart]
    """The sums, and all that is for them alone."""
    rows: tuple[Node, ...]
    """Small results of every row."""
    logarithms: tuple[Node, ...]
    """The `log_softmax` of the region, of which a row keeps its maximum and the logarithm of its sum."""


def sums_by_windows(region: ProductRegion) -> Sums | None:
    """Return how the sums of a region can be made by windows of classes; None where they cannot.

    What the sums add up must be made of the product element by element, but for one `log_softmax` and the gradient of
    a loss of one class a row.
    """
    sums = region.having(*SUMS)
    found = _Needed(region)
    if not sums or not all(found.can(node) for node in sums):
        return None
    alone: dict[Node, RowPart] = {}
    for node in reversed(region.nodes):
        if node in sums or (node not in region.kept and all(user in alone for user in node.users)):
            alone[node] = region.parts[node]
    return Sums(alone, tuple(found.rows), tuple(found.logarithms))


@dataclass(slots=True)
class _Needed:
    region: ProductRegion
    rows: dict[Node, None] = field(default_factory=dict[Node, None])
    logarithms: dict[Node, None] = field(default_factory=dict[Node, None])
    seen: dict[Node, bool] = field(default_factory=dict[Node, bool])

    def can(self, node: Node) -> bool:
        """Tell whether some columns of what a node computes can be computed alone."""
        if node not in self.seen:
            self.seen[node] = self._can(node)
        return self.seen[node]

    def _can(self, node: Node) -> bool:
        parts, product = self.region.parts, self.region.product
        if node is product:
            return node.target in (aten.mm.default, aten.addmm.default)
        sources = [source for source in node.all_input_nodes if source in parts]
        target: Any = node.target
        if parts[node].role is RowRole.SUM:
            left, right = node.args
            return left in parts and right not in parts and self.can(left)
        if parts[node].role is RowRole.COLUMN_SUM:
            return all(map(self.can, sources))
        if parts[node].role is RowRole.ADDED:
            return False
        shape = value_of(node).shape if isinstance(value_of(node), torch.Tensor) else ()
        if target is aten.t.default or op_name(target) in SAME:
            return all(map(self.can, sources))
        if not shape or shape[-1] != value_of(product).shape[1]:
            self.rows[node] = None
            return isinstance(value_of(node), torch.Tensor) and parts[node].role is RowRole.ROWS
        if op_name(target) in _SLICES:
            return arguments_by_name(node)["dim"] % len(shape) < len(shape) - 1 and all(map(self.can, sources))
        if op_name(target) in VIEWS:
            return value_of(_node(node.args[0])).shape[-1] == shape[-1] and all(map(self.can, sources))
        if target is aten._log_softmax.default:
            self.logarithms[node] = None
            is_last = node.args[1] in (-1, len(shape) - 1) and node.args[2] is False
            return is_last and len(shape) == 2 and all(map(self.can, sources))
        if target is aten.nll_loss_backward.default:
            given = arguments_by_name(node)
            outside = given.get("weight") is None and (given["reduction"] == 0 or given["total_weight"] not in parts)
            incoming = given["grad_output"]
            return outside and len(shape) == 2 and (incoming not in parts or self.can(incoming))
        if target is aten._log_softmax_backward_data.default:
            gradient, logarithms = map(_source, node.args[:2])
            is_loss = gradient.target is aten.nll_loss_backward.default and gradient in parts
            return is_loss and logarithms in parts and self.can(gradient) and self.can(logarithms)
        return torch.Tag.pointwise in target.tags and all(map(self.can, sources))


def _source(node: Any) -> Node:
    while op_name(node.target) in (*SAME, *VIEWS):
        node = node.args[0]
    return node


@dataclass(frozen=True, slots=True)
class Kept:
    """What pass over the rows has kept, as nodes of the new graph."""

    rows: Mapping[Node, Node]
    maxima: Mapping[Node, Node]
    sums: Mapping[Node, Node]
    """The logarithms of the sums of exponentials, less the maxima."""


def write_windows(
    graph: Graph, region: ProductRegion, windows: Windows, made: Mapping[Node, Node], kept: Kept
) -> Iterator[tuple[Node, Node]]:
    """Append the sums of a region by windows of classes; yields each sum with its next part."""
    classes = value_of(region.product).shape[1]
    targets = [_targets(graph, node, made) for node in region.parts if node.target is aten.nll_loss_backward.default]
    for first in range(0, classes, windows.classes):
        last = min(first + windows.classes, classes)
        window = _Window(graph, region, made, kept, dict(targets), first, last, windows.at_once)
        for node in region.having(*SUMS):
            yield node, window.of_sum(node)


def _targets(graph: Graph, node: Node, made: Mapping[Node, Node]) -> tuple[Node, Node]:
    given = arguments_by_name(node)
    return node, call_like(node, graph, aten.eq.Scalar, made[given["target"]], given["ignore_index"])


@dataclass(slots=True)
class _Window:
    graph: Graph
    region: ProductRegion
    made: Mapping[Node, Node]
    kept: Kept
    ignored: Mapping[Node, Node]
    """Where targets are to be ignored, by the gradient of the loss."""
    first: int
    last: int
    at_once: int | None
    computed: dict[Node, Node] = field(default_factory=dict[Node, Node])

    @property
    def start(self) -> int:
        """The first class that is computed."""
        return max(0, self.first - _ON_EITHER_SIDE)

    @property
    def end(self) -> int:
        """The class after the last one that is computed."""
        return min(value_of(self.region.product).shape[1], self.last + _ON_EITHER_SIDE)

    def of_sum(self, node: Node) -> Node:
        """Return the part of a sum that is for the classes of this window."""
        source, *others = node.args
        place = self.first - self.start, self.last - self.start
        if self.region.parts[node].role is RowRole.COLUMN_SUM:
            columns = self._call(node, aten.slice.Tensor, self._of(source), -1, *place)
            return self._call(node, node.target, columns, *others)
        summed = self._summed(node, self._of(source), self.made[_node(others[0])])
        return self._call(node, aten.slice.Tensor, summed, 0, *place)

    def _summed(self, node: Node, left: Node, right: Node) -> Node:
        """Multiply two matrices, as many rows of the right one at once as are summed at once."""
        total = value_of(_node(node.args[1])).shape[0]
        if self.at_once is None or self.at_once >= total:
            return self._call(node, aten.mm.default, left, right)
        places = [(first, min(first + self.at_once, total)) for first in range(0, total, self.at_once)]
        columns = [self._call(node, aten.slice.Tensor, left, 1, *place) for place in places]
        rows = [self._call(node, aten.slice.Tensor, right, 0, *place) for place in places]
        summed = self._call(node, aten.mm.default, columns[0], rows[0])
        for factors in zip(columns[1:], rows[1:], strict=True):
            self._call(node, aten.addmm_.default, summed, *factors)
        return summed

    def _of(self, node: Any) -> Node:
        if node not in self.computed:
            self.computed[node] = self._write(node)
        return self.computed[node]

    def _write(self, node: Node) -> Node:
        classes = value_of(self.region.product).shape[1]
        if node in self.kept.rows:
            return self.kept.rows[node]
        if node not in self.region.parts:
            whole, made = value_of(node), self.made[node]
            is_cut = isinstance(whole, torch.Tensor) and whole.dim() and whole.shape[-1] == classes
            return self._call(node, aten.slice.Tensor, made, -1, self.start, self.end) if is_cut else made
        if node is self.region.product:
            *added, left, right = node.args
            operands = *map(self._of, added), self.made[_node(left)], self._of(right)
            return self._call(node, node.target, *operands, **node.kwargs)
        if node in self.kept.maxima:
            centered = self._call(node, aten.sub.Tensor, self._of(node.args[0]), self.kept.maxima[node])
            return self._call(node, aten.sub.Tensor, centered, self.kept.sums[node])
        if node in self.ignored:
            return self._gradient_of_loss(node)
        args, kwargs = map_nodes((node.args, dict(node.kwargs)), self._of)
        if op_name(node.target) in (*VIEWS, "slice_backward"):
            args = (args[0], [*value_of(node).shape[:-1], self.end - self.start], *args[2:])
        return self._call(node, node.target, *args, **kwargs)

    def _gradient_of_loss(self, node: Node) -> Node:
        """Let the classes next to the window stand for all others, so that the gradients of a row have their sum."""
        given = arguments_by_name(node)
        moved = self._call(node, aten.sub.Tensor, self.made[given["target"]], self.start)
        before = self.first - self.start - (1 if self.start else 0)
        after = self.last - self.start - (1 if self.end == self.last else 0)
        near = self._call(node, aten.clamp.default, moved, before, after)
        target = self._call(node, aten.masked_fill.Scalar, near, self.ignored[node], _IGNORED)
        incoming, logarithms = self._of(given["grad_output"]), self._of(given["self"])
        weight = self.made.get(given["total_weight"])
        if weight is None:  # losses of rows read none
            weight = self._call(node, aten.scalar_tensor.default, 0, dtype=value_of(node).dtype)
        settings = (None, given["reduction"], _IGNORED, weight)
        return self._call(node, aten.nll_loss_backward.default, incoming, logarithms, target, *settings)

    def _call(self, like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        return call_like(like, self.graph, target, *args, **kwargs)


def _node(value: Any) -> Node:
    return value
