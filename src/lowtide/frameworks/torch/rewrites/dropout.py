"""Dropout as a random mask and products, so that its result can be recomputed (`SplitDropout`).

An op that draws random numbers runs once, so its result is saved for backward. A mask takes one byte per element.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, origin_of

aten = torch.ops.aten


@dataclass(frozen=True)
class SplitDropout(Rewrite[Node]):
    """Replace every `native_dropout` on the CPU by the draw and products of its kernel."""

    name = "split-dropout"
    source = "ATen's CPU kernel of `native_dropout`, op by op."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        nodes = module.graph.find_nodes(op="call_function", target=aten.native_dropout.default)
        return [node for node in nodes if _draws_on_cpu(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        for node in sites:
            _split(module.graph, node)
        return module


def _draws_on_cpu(node: Node) -> bool:
    given = arguments_by_name(node)
    on_cpu = value_of(given["input"]).device.type == "cpu"
    return on_cpu and given["train"] is not False and 0 < given["p"] < 1


def _split(graph: Graph, node: Node) -> None:
    given = arguments_by_name(node)
    rate, source = given["p"], given["input"]
    result, drawn = value_of(node)
    form: dict[str, Any] = {"dtype": drawn.dtype, "device": drawn.device}
    scale = torch.tensor(1 / (1 - rate), dtype=result.dtype).item()  # the kernel rounds it to its input's type
    with graph.inserting_before(node):
        empty = graph.call_function(aten.empty_like.default, (source,), form)
        mask = graph.call_function(aten.bernoulli_.float, (empty, 1 - rate))
        kept = graph.call_function(aten.mul.Tensor, (source, mask))
        scaled = graph.call_function(aten.mul.Tensor, (kept, scale))
    for made in (empty, mask, kept, scaled):
        made.meta = origin_of(node)
    for user in list(node.users):
        if user.target is operator.getitem:
            user.replace_all_uses_with(mask if user.args[1] == 1 else scaled)
            graph.erase_node(user)
    graph.erase_node(node)
