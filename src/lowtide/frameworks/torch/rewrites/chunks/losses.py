"""Rewrites of losses as sums over rows or pixels, so that the gradient of a row does not wait for all other rows."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import op_name, overload_of, schema_arguments
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.chunks.product_region import ChunkDevices
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, call_like

aten = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2
"""PyTorch's numbers of the kinds of reduction."""
LOSS_GRADIENTS = tuple(
    f"{loss}_backward" for loss in ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
)
"""Gradients of losses with one number per element, reduced or not."""
_IGNORED = -100
_MIN_BYTES = 1 << 20


@dataclass(frozen=True)
class LossesOfRows(Rewrite[Node]):
    """Compute `nll_loss` row by row, and sum the losses of the rows.

    For losses without reduction, the kernel returns zero as the total weight. Its readers get a constant.
    """

    name = "losses-of-rows"
    source = "The kernel sums one number per row, in row order, for any number of classes."
    devices: ChunkDevices = ChunkDevices.CPU
    min_bytes: int = _MIN_BYTES
    """Losses of smaller logarithms are left unchanged."""

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the large losses that are reduced, or whose total weight is read."""
        losses = module.graph.find_nodes(op="call_function", target=aten.nll_loss_forward.default)
        large = (node for node in losses if self._is_large(node) and (_is_reduced(node) or _total_weights(node)))
        return [node for node in large if self.devices.has(arguments_by_name(node)["self"])]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Return a copy with two losses for each site: one of the rows, one that sums them."""
        graph = Graph()
        made: dict[Node, Node] = {}
        items: dict[Node, Node] = {}
        for node in module.graph.nodes:
            if node in sites and not _is_reduced(node):
                made[node] = graph.node_copy(node, made.__getitem__)
                dtype = value_of(arguments_by_name(node)["self"]).dtype
                zero = call_like(node, graph, aten.full.default, [], 0, dtype=dtype)
                items |= dict.fromkeys(_total_weights(node), zero)
            elif node in sites:
                results = _SummedLoss(graph, node, made).results()
                items |= {item: results[bool(item.args[1])] for item in node.users}
            elif node in items:
                made[node] = items[node]
            else:
                made[node] = graph.node_copy(node, made.__getitem__)
        return GraphModule(module, graph)

    def _is_large(self, node: Node) -> bool:
        value = value_of(arguments_by_name(node)["self"])
        is_matrix = value.dim() == 2 and not is_symbolic(value)
        return is_matrix and value.numel() * value.element_size() >= self.min_bytes


def _is_reduced(node: Node) -> bool:
    return arguments_by_name(node).get("reduction", MEAN) in (MEAN, SUM)


def _total_weights(node: Node) -> list[Node]:
    """Return the nodes that get the total weight of a loss, if their values are read."""
    return [item for item in node.users if item.args[1] == 1 and item.users]


@dataclass(frozen=True, slots=True)
class _SummedLoss:
    graph: Graph
    node: Node
    made: Mapping[Node, Node]

    def results(self) -> tuple[Node, Node]:
        """Append the losses of rows and their sum. Return the loss and the total weight."""
        given = arguments_by_name(self.node)
        logarithms, target = self.made[given["self"]], self.made[given["target"]]
        weights, reduction = given.get("weight"), given.get("reduction", MEAN)
        ignored = given.get("ignore_index", _IGNORED)
        weight = None if weights is None else self.made[weights]
        losses = self._call(aten.nll_loss_forward.default, logarithms, target, weight, NONE, ignored)
        picked = self._call(aten.neg.default, self._call(operator.getitem, losses, 0))
        is_ignored = self._call(aten.eq.Scalar, target, ignored)
        first = self._call(aten.where.Scalar, is_ignored, _IGNORED, 0)
        if weight is None:
            ones = self._call(aten._to_copy.default, target, dtype=value_of(given["self"]).dtype)
            return self._sum(picked, first, reduction, 0), self._sum(ones, first, reduction, 1)
        inside = self._call(aten.masked_fill.Scalar, target, is_ignored, 0)
        row_weights = self._call(aten.neg.default, self._call(aten.index.Tensor, weight, [inside]))
        total = self._sum(row_weights, first, SUM, 0)
        loss = self._sum(picked, first, SUM, 0)
        return self._call(aten.div.Tensor, loss, total) if reduction == MEAN else loss, total

    def _sum(self, picked: Node, target: Node, reduction: int, item: int) -> Node:
        """Append the kernel's reduction of one number per row."""
        column = self._call(aten.unsqueeze.default, picked, 1)
        loss = self._call(aten.nll_loss_forward.default, column, target, None, reduction, _IGNORED)
        return self._call(operator.getitem, loss, item)

    def _call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        return call_like(self.node, self.graph, target, *args, **kwargs)


@dataclass(frozen=True)
class LossesOfPixels(Rewrite[Node]):
    """Compute `nll_loss2d` pixel by pixel, and sum the losses. The total weight is computed from the targets."""

    name = "losses-of-pixels"
    source = "In real numbers the loss is that sum divided by that weight; the kernel sums in another order."
    preserves = Preserves(up_to="the rounding of two sums over pixels")

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the losses that are reduced."""
        losses = module.graph.find_nodes(op="call_function", target=aten.nll_loss2d_forward.default)
        given = ((node, arguments_by_name(node)) for node in losses)
        return [node for node, each in given if each["reduction"] != NONE and not is_symbolic(value_of(each["self"]))]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Return a copy with the losses of pixels, their sum and their weight in place of each site."""
        graph = Graph()
        made: dict[Node, Node] = {}
        items: dict[Node, Node] = {}
        for node in module.graph.nodes:
            if node in sites:
                results = _summed_pixels(graph, node, made)
                items |= {item: results[item.args[1]] for item in node.users}
            else:
                made[node] = items[node] if node in items else graph.node_copy(node, made.__getitem__)
        return GraphModule(module, graph)


def _summed_pixels(graph: Graph, node: Node, made: Mapping[Node, Node]) -> tuple[Node, Node]:
    """Append the losses of pixels and their sum. Return the loss and the total weight."""

    def call(target: Any, *args: Any, **kwargs: Any) -> Node:
        return call_like(node, graph, target, *args, **kwargs)

    given = arguments_by_name(node)
    dtype = value_of(given["self"]).dtype
    logarithms, target, ignored = made[given["self"]], made[given["target"]], given["ignore_index"]
    weight = None if given["weight"] is None else made[given["weight"]]
    losses = call(operator.getitem, call(aten.nll_loss2d_forward.default, logarithms, target, weight, NONE, ignored), 0)
    is_ignored = call(aten.eq.Scalar, target, ignored)
    if weight is None:
        counted = call(aten._to_copy.default, call(aten.logical_not.default, is_ignored), dtype=dtype)
    else:
        inside = call(aten.masked_fill.Scalar, target, is_ignored, 0)
        counted = call(aten.masked_fill.Scalar, call(aten.index.Tensor, weight, [inside]), is_ignored, 0)
    loss, total = call(aten.sum.default, losses), call(aten.sum.default, counted)
    return (call(aten.div.Tensor, loss, total) if given["reduction"] == MEAN else loss), total


@dataclass(frozen=True)
class MeanLosses(Rewrite[Node]):
    """Compute the gradient of a mean loss as that of a sum, after dividing the incoming gradient by the elements."""

    name = "mean-losses"
    source = "In real numbers a mean is a sum over a count; the kernel multiplies in another order."
    preserves = Preserves(up_to="the rounding of one product per element")

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the gradients of mean losses."""
        return [node for node in module.graph.nodes if _is_of_mean(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Return a copy with a division before each gradient."""
        graph = Graph()
        made: dict[Node, Node] = {}
        for node in module.graph.nodes:
            made[node] = copied = graph.node_copy(node, made.__getitem__)
            if node in sites:
                with graph.inserting_before(copied):
                    copied.args, copied.kwargs = _arguments_of_sum(graph, node, copied), {}
        return GraphModule(module, graph)


def _arguments_of_sum(graph: Graph, node: Node, copied: Node) -> tuple[Any, ...]:
    given = arguments_by_name(copied)
    count = value_of(arguments_by_name(node)["self"]).numel()
    given["grad_output"] = call_like(node, graph, aten.div.Tensor, given["grad_output"], count)
    given["reduction"] = SUM
    return tuple(given.get(argument.name, argument.default_value) for argument in schema_arguments(node.target))


def _is_of_mean(node: Node) -> bool:
    if overload_of(node.target) is None or op_name(node.target) not in LOSS_GRADIENTS:
        return False
    return arguments_by_name(node).get("reduction", MEAN) == MEAN and not is_symbolic(value_of(node))
