"""Dropout as a random mask and products, so that what it drops out of can be made again without another draw.

An op that draws random numbers runs once. As one op, dropout would have to keep its whole result for the backward pass;
as two, its mask of one byte an element.
"""

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.effects import arguments_by_name
from lowtide.frameworks.torch.torch_internals import another_like, value_of

aten = torch.ops.aten


def split_dropout(graph: Graph) -> None:
    """Replace every `native_dropout` on the CPU by the draws and products that its kernel makes there, bit for bit.

    Other devices have kernels of their own, which are left alone.
    """
    for node in graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        given = arguments_by_name(node)
        rate, source = given["p"], given["input"]
        if value_of(source).device.type == "cpu" and given["train"] is not False and 0 < rate < 1:
            _split(graph, node, source, rate)


def _split(graph: Graph, node: Node, source: Node, rate: float) -> None:
    values: tuple[torch.Tensor, torch.Tensor] = value_of(node)
    result, drawn = values
    form: dict[str, Any] = {"dtype": drawn.dtype, "device": drawn.device}
    scale = torch.tensor(1 / (1 - rate), dtype=result.dtype).item()  # the kernel rounds it to the type of its input
    with graph.inserting_before(node):
        empty = graph.call_function(aten.empty_like.default, (source,), form)
        mask = graph.call_function(aten.bernoulli_.float, (empty, 1 - rate))
        kept = graph.call_function(aten.mul.Tensor, (source, mask))
        scaled = graph.call_function(aten.mul.Tensor, (kept, scale))
    for made, value in ((empty, drawn), (mask, drawn), (kept, another_like(result)), (scaled, result)):
        made.meta = {**node.meta, "val": value}
    for user in list(node.users):
        if user.target is operator.getitem:
            user.replace_all_uses_with(mask if user.args[1] == 1 else scaled)
            graph.erase_node(user)
    graph.erase_node(node)
