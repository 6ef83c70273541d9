"""The loss of many rows as the losses of single rows, summed once; what all rows weigh, the targets alone tell."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.chunks.devices import ChunkDevices
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like

aten = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2
"""Kinds of reduction, as PyTorch numbers them."""
_IGNORED = -100
_FEWEST_BYTES = 1 << 20
"""Smaller ones need little."""


@dataclass(frozen=True)
class LossesOfRows(Rewrite[Node]):
    """Sum `nll_loss` up from the losses of its rows, so that a row's gradient does not wait for all other rows.

    Where losses of rows are asked for, the kernel gives zero for what all rows weigh, and whoever reads it a constant.
    """

    name = "losses-of-rows"
    source = "The kernel adds up one number a row, in the order of the rows, whatever the number of classes."
    devices: ChunkDevices = ChunkDevices.CPU
    fewest_bytes: int = _FEWEST_BYTES
    """Of how many bytes the smallest logarithms are."""

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the large losses that are summed up, and those of rows of which somebody reads what all weigh."""
        losses = module.graph.find_nodes(op="call_function", target=aten.nll_loss_forward.default)
        large = (node for node in losses if self._is_large(node) and (_is_summed(node) or _weight(node)))
        return [node for node in large if self.devices.has(arguments_by_name(node)["self"])]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Return a copy with two losses in the place of each, of the rows and of their losses."""
        graph = Graph()
        made: dict[Node, Node] = {}
        items: dict[Node, Node] = {}
        for node in module.graph.nodes:
            if node in sites and not _is_summed(node):
                made[node] = graph.node_copy(node, made.__getitem__)
                dtype = value_of(arguments_by_name(node)["self"]).dtype
                zero = call_like(node, graph, aten.full.default, [], 0, dtype=dtype)
                items |= dict.fromkeys(_weight(node), zero)
            elif node in sites:
                loss, weight = _Loss(graph, node, made).summed()
                for user in node.users:
                    items[user] = weight if user.args[1] else loss
            elif node in items:
                made[node] = items[node]
            else:
                made[node] = graph.node_copy(node, made.__getitem__)
        return GraphModule(module, graph)

    def _is_large(self, node: Node) -> bool:
        value = value_of(arguments_by_name(node)["self"])
        known = value.dim() == 2 and not is_symbolic(value)
        return known and value.numel() * value.element_size() >= self.fewest_bytes


def _is_summed(node: Node) -> bool:
    return arguments_by_name(node).get("reduction", MEAN) in (MEAN, SUM)


def _weight(node: Node) -> list[Node]:
    """Return what takes the weight of all rows, where anybody reads it."""
    return [item for item in node.users if item.args[1] == 1 and item.users]


@dataclass(frozen=True, slots=True)
class _Loss:
    graph: Graph
    node: Node
    made: Mapping[Node, Node]

    def summed(self) -> tuple[Node, Node]:
        """Return the loss and the weight of all rows."""
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
        of_rows = self._call(aten.neg.default, self._call(aten.index.Tensor, weight, [inside]))
        total = self._sum(of_rows, first, SUM, 0)
        loss = self._sum(picked, first, SUM, 0)
        return self._call(aten.div.Tensor, loss, total) if reduction == MEAN else loss, total

    def _sum(self, picked: Node, target: Node, reduction: int, item: int) -> Node:
        """Return what the kernel makes of one number a row."""
        column = self._call(aten.unsqueeze.default, picked, 1)
        loss = self._call(aten.nll_loss_forward.default, column, target, None, reduction, _IGNORED)
        return self._call(operator.getitem, loss, item)

    def _call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        return call_like(self.node, self.graph, target, *args, **kwargs)
