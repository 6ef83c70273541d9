"""The gradient of a loss that is a mean over all elements, as that of a sum, so that some of them can be done alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import op_name, overload_of, schema_arguments
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.chunks.row_losses import MEAN, SUM
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, call_like

aten = torch.ops.aten
LOSS_GRADIENTS = tuple(
    f"{loss}_backward" for loss in ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
)
"""Gradients of losses that are one number an element, reduced or not; a mean divides by how many elements it has."""


@dataclass(frozen=True)
class MeanLosses(Rewrite[Node]):
    """Divide the gradient of a mean loss by the number of its elements, and go on as for a sum."""

    name = "mean-losses"
    source = "In real numbers a mean is a sum over a count; the kernel multiplies in another order."
    preserves = Preserves(up_to="the rounding of one product an element")

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the gradients of mean losses."""
        return [node for node in module.graph.nodes if _is_of_mean(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Return a copy with a division in front of each gradient."""
        graph = Graph()
        made: dict[Node, Node] = {}
        for node in module.graph.nodes:
            made[node] = copied = graph.node_copy(node, made.__getitem__)
            if node in sites:
                with graph.inserting_before(copied):
                    copied.args, copied.kwargs = _of_sum(graph, node, copied), {}
        return GraphModule(module, graph)


def _of_sum(graph: Graph, node: Node, copied: Node) -> tuple[Any, ...]:
    """Return the arguments of a gradient as that of a sum."""
    given = arguments_by_name(copied)
    count = value_of(arguments_by_name(node)["self"]).numel()
    given["grad_output"] = call_like(node, graph, aten.div.Tensor, given["grad_output"], count)
    given["reduction"] = SUM
    return tuple(given.get(argument.name, argument.default_value) for argument in schema_arguments(node.target))


def _is_of_mean(node: Node) -> bool:
    if overload_of(node.target) is None or op_name(node.target) not in LOSS_GRADIENTS:
        return False
    return arguments_by_name(node).get("reduction", MEAN) == MEAN and not is_symbolic(value_of(node))
