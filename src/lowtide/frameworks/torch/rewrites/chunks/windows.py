"""Sums over rows by windows: a few values of each row suffice to recompute columns of a product."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals.nodes import map_arguments, value_of
from lowtide.frameworks.torch.internals.operators import op_name
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.chunks.op_rules import ALIASES, VIEWS
from lowtide.frameworks.torch.rewrites.chunks.product_region import ProductRegion
from lowtide.frameworks.torch.rewrites.chunks.rule import SUMS, ChunkedOp, RowRole, argument_of, normalize_dims
from lowtide.frameworks.torch.rewrites.rewrite import call_like

aten = torch.ops.aten
_MARGIN = 16
"""Extra columns on each side; the nearest get all targets outside of the window."""
_IGNORED = -100
_SLICES = ("slice", "slice_backward")


@dataclass(frozen=True, slots=True)
class Windows:
    """Sizes of the windows of a product region."""

    classes: int
    separate: bool = False
    """Whether windows stay separate tensors, for updates that read them one by one."""
    rows_at_once: int | None = None
    """Rows summed at once; None for all.

    A BLAS sums rows of large matrices block by block, and of small ones in other blocks if it has several threads.
    """


@dataclass(frozen=True, slots=True)
class WindowSums:
    """The sums that windows can compute."""

    nodes: dict[Node, ChunkedOp]
    rows: tuple[Node, ...]
    logarithms: tuple[Node, ...]
    """The `log_softmax`, given by each row's maximum and logarithm of its sum."""


@dataclass(frozen=True, slots=True)
class RowValues:
    rows: Mapping[Node, Node]
    maxima: Mapping[Node, Node]
    logarithms: Mapping[Node, Node]


def sums_by_windows(region: ProductRegion) -> WindowSums | None:
    """Return the sums that windows can compute, or None unless all.

    Summands must depend on the product element by element, except for one `log_softmax` and a loss of one class per
    row.
    """
    sums = region.with_role(*SUMS)
    search = _ColumnSearch(region)
    if not sums or not all(search.has_columns(node) for node in sums):
        return None
    nodes: dict[Node, ChunkedOp] = {}
    for node in reversed(region.ops):
        if node in sums or (node not in region.results and all(user in nodes for user in node.users)):
            nodes[node] = region.ops[node]
    return WindowSums(nodes, tuple(search.rows), tuple(search.logarithms))


@dataclass(slots=True)
class _ColumnSearch:
    region: ProductRegion
    rows: dict[Node, None] = field(default_factory=dict[Node, None])
    logarithms: dict[Node, None] = field(default_factory=dict[Node, None])
    seen: dict[Node, bool] = field(default_factory=dict[Node, bool])

    def has_columns(self, node: Node) -> bool:
        if node not in self.seen:
            self.seen[node] = self._has_columns(node)
        return self.seen[node]

    def _has_columns(self, node: Node) -> bool:
        ops, product = self.region.ops, self.region.product
        if node is product:
            return node.target in (aten.mm.default, aten.addmm.default)
        sources = [source for source in node.all_input_nodes if source in ops]
        target: Any = node.target
        role = ops[node].role
        if role is RowRole.SUM:
            left, right = node.args
            return left in ops and right not in ops and self.has_columns(left)
        if role is RowRole.COLUMN_SUM:
            return all(map(self.has_columns, sources))
        if role is RowRole.PARTIAL_SUM:
            return False
        shape = value_of(node).shape if isinstance(value_of(node), torch.Tensor) else ()
        if target is aten.t.default or op_name(target) in ALIASES:
            return all(map(self.has_columns, sources))
        if not shape or shape[-1] != value_of(product).shape[1]:
            self.rows[node] = None
            return isinstance(value_of(node), torch.Tensor) and role is RowRole.ROWS
        last = len(shape) - 1
        if op_name(target) in _SLICES:
            dims = normalize_dims(argument_of(node, "dim"), len(shape))
            return dims is not None and dims[0] < last and all(map(self.has_columns, sources))
        if op_name(target) in VIEWS:
            return value_of(_node(node.args[0])).shape[-1] == shape[-1] and all(map(self.has_columns, sources))
        if target is aten._log_softmax.default:
            self.logarithms[node] = None
            is_last = normalize_dims(node.args[1], len(shape)) == (last,) and node.args[2] is False
            return is_last and len(shape) == 2 and all(map(self.has_columns, sources))
        if target is aten.nll_loss_backward.default:
            given = arguments_by_name(node)
            outside = given.get("weight") is None and (given["reduction"] == 0 or given["total_weight"] not in ops)
            incoming = given["grad_output"]
            return outside and len(shape) == 2 and (incoming not in ops or self.has_columns(incoming))
        if target is aten._log_softmax_backward_data.default:
            gradient, logarithms = map(_source, node.args[:2])
            is_loss = gradient.target is aten.nll_loss_backward.default and gradient in ops
            return is_loss and logarithms in ops and self.has_columns(gradient) and self.has_columns(logarithms)
        return torch.Tag.pointwise in target.tags and all(map(self.has_columns, sources))


def _source(node: Any) -> Node:
    while op_name(node.target) in (*ALIASES, *VIEWS):
        node = node.args[0]
    return node


def append_windows(
    graph: Graph, region: ProductRegion, windows: Windows, made: Mapping[Node, Node], values: RowValues
) -> Iterator[tuple[Node, int, int, Node]]:
    """Append a region's sums by windows. Yield each with the columns of its next window, and the window."""
    classes = value_of(region.product).shape[1]
    losses = [node for node in region.ops if node.target is aten.nll_loss_backward.default]
    ignored = {node: _ignored_targets(graph, node, made) for node in losses}
    for first in range(0, classes, windows.classes):
        last = min(first + windows.classes, classes)
        window = _Window(graph, region, made, values, ignored, first, last, windows.rows_at_once)
        for node in region.with_role(*SUMS):
            yield node, first, last, window.sum(node)


def _ignored_targets(graph: Graph, node: Node, made: Mapping[Node, Node]) -> Node:
    given = arguments_by_name(node)
    return call_like(node, graph, aten.eq.Scalar, made[given["target"]], given["ignore_index"])


@dataclass(slots=True)
class _Window:
    graph: Graph
    region: ProductRegion
    made: Mapping[Node, Node]
    values: RowValues
    ignored: Mapping[Node, Node]
    first: int
    last: int
    rows_at_once: int | None
    computed: dict[Node, Node] = field(default_factory=dict[Node, Node])

    @property
    def start(self) -> int:
        return max(0, self.first - _MARGIN)

    @property
    def end(self) -> int:
        return min(value_of(self.region.product).shape[1], self.last + _MARGIN)

    def sum(self, node: Node) -> Node:
        source, *others = node.args
        place = self.first - self.start, self.last - self.start
        if self.region.ops[node].role is RowRole.COLUMN_SUM:
            columns = self._call(node, aten.slice.Tensor, self._computed(source), -1, *place)
            return self._call(node, node.target, columns, *others, **node.kwargs)
        summed = self._product(node, self._computed(source), self.made[_node(others[0])])
        return self._call(node, aten.slice.Tensor, summed, 0, *place)

    def _product(self, node: Node, left: Node, right: Node) -> Node:
        total = value_of(_node(node.args[1])).shape[0]
        if self.rows_at_once is None or self.rows_at_once >= total:
            return self._call(node, aten.mm.default, left, right)
        places = [(first, min(first + self.rows_at_once, total)) for first in range(0, total, self.rows_at_once)]
        columns = [self._call(node, aten.slice.Tensor, left, 1, *place) for place in places]
        rows = [self._call(node, aten.slice.Tensor, right, 0, *place) for place in places]
        summed = self._call(node, aten.mm.default, columns[0], rows[0])
        for factors in zip(columns[1:], rows[1:], strict=True):
            self._call(node, aten.addmm_.default, summed, *factors)
        return summed

    def _computed(self, node: Any) -> Node:
        if node not in self.computed:
            self.computed[node] = self._append(node)
        return self.computed[node]

    def _append(self, node: Node) -> Node:
        classes = value_of(self.region.product).shape[1]
        if node in self.values.rows:
            return self.values.rows[node]
        if node not in self.region.ops:
            value, made = value_of(node), self.made[node]
            has_columns = isinstance(value, torch.Tensor) and value.dim() and value.shape[-1] == classes
            return self._call(node, aten.slice.Tensor, made, -1, self.start, self.end) if has_columns else made
        if node is self.region.product:
            *bias, left, right = node.args
            operands = *map(self._computed, bias), self.made[_node(left)], self._computed(right)
            return self._call(node, node.target, *operands, **node.kwargs)
        if node in self.values.maxima:
            centered = self._call(node, aten.sub.Tensor, self._computed(node.args[0]), self.values.maxima[node])
            return self._call(node, aten.sub.Tensor, centered, self.values.logarithms[node])
        if node in self.ignored:
            return self._gradient_of_loss(node)
        args, kwargs = map_arguments(node, self._computed)
        if op_name(node.target) in (*VIEWS, "slice_backward"):
            args = (args[0], [*value_of(node).shape[:-1], self.end - self.start], *args[2:])
        return self._call(node, node.target, *args, **kwargs)

    def _gradient_of_loss(self, node: Node) -> Node:
        """Move other targets to the columns next to the window, so that gradients of a row keep their sum."""
        given = arguments_by_name(node)
        moved = self._call(node, aten.sub.Tensor, self.made[given["target"]], self.start)
        before = self.first - self.start - (1 if self.start else 0)
        after = self.last - self.start - (1 if self.end == self.last else 0)
        near = self._call(node, aten.clamp.default, moved, before, after)
        target = self._call(node, aten.masked_fill.Scalar, near, self.ignored[node], _IGNORED)
        incoming, logarithms = self._computed(given["grad_output"]), self._computed(given["self"])
        weight = self.made.get(given["total_weight"])
        if weight is None:  # losses of rows do not read it
            weight = self._call(node, aten.scalar_tensor.default, 0, dtype=value_of(node).dtype)
        settings = (None, given["reduction"], _IGNORED, weight)
        return self._call(node, aten.nll_loss_backward.default, incoming, logarithms, target, *settings)

    def _call(self, like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        return call_like(like, self.graph, target, *args, **kwargs)


def _node(value: Any) -> Node:
    return value
