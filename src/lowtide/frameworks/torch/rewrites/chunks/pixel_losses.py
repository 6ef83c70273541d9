"""The cross entropy of pixels as the losses of single pixels, summed once; what all weigh, the targets alone tell."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.chunks.row_losses import MEAN, NONE
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, call_like

aten = torch.ops.aten


@dataclass(frozen=True)
class LossesOfPixels(Rewrite[Node]):
    """Sum `nll_loss2d` up from the losses of its pixels, so that the gradient of an image does not wait for all others.

    What all pixels weigh is counted from the targets.
    """

    name = "losses-of-pixels"
    source = "In real numbers the loss is that sum, over that weight; the kernel adds up in another order."
    preserves = Preserves(up_to="the rounding of two sums over pixels")

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the losses that are summed up."""
        losses = module.graph.find_nodes(op="call_function", target=aten.nll_loss2d_forward.default)
        given = ((node, arguments_by_name(node)) for node in losses)
        return [node for node, each in given if each["reduction"] != NONE and not is_symbolic(value_of(each["self"]))]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Return a copy with the losses of pixels, their sum and their weight in the place of each."""
        graph = Graph()
        made: dict[Node, Node] = {}
        items: dict[Node, Node] = {}
        for node in module.graph.nodes:
            if node in sites:
                results = _summed(graph, node, made)
                items |= {item: results[item.args[1]] for item in node.users}
            else:
                made[node] = items[node] if node in items else graph.node_copy(node, made.__getitem__)
        return GraphModule(module, graph)


def _summed(graph: Graph, node: Node, made: Mapping[Node, Node]) -> tuple[Node, Node]:
    """Return the loss and the weight of all pixels."""

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
