"""Batch normalization that overwrites its running statistics, as an op that overwrites nothing and two small copies.

An op that overwrites something runs once, and what it computes beside that could never be made again.
"""

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.effects import arguments_by_name
from lowtide.frameworks.torch.torch_internals import another_like, value_of

aten = torch.ops.aten
_STATISTICS = ("running_mean", "running_var")


def split_batch_norm(graph: Graph) -> None:
    """Replace every `native_batch_norm` that trains by its functional form on copies of the statistics, bit for bit.

    The statistics are copied before it and overwritten right after it, once, whatever runs again. The backward op, to
    which the statistics mean nothing in training, gets the copies: they stay until the last op is over
    that may want the forward op to run again.
    """
    for node in graph.find_nodes(op="call_function", target=aten.native_batch_norm.default):
        given = arguments_by_name(node)
        if given["training"] and all(isinstance(given[name], Node) for name in _STATISTICS):
            _split(graph, node, given)


def _split(graph: Graph, node: Node, given: dict[str, Any]) -> None:
    values: list[Any] = list(value_of(node))
    statistics: list[Node] = [given[name] for name in _STATISTICS]
    with graph.inserting_before(node):
        copies = [graph.call_function(aten.clone.default, (source,)) for source in statistics]
        given.update(zip(_STATISTICS, copies, strict=True))
        normalized = graph.call_function(aten._native_batch_norm_legit_functional.default, tuple(given.values()))
        updated = [graph.call_function(operator.getitem, (normalized, 3 + index)) for index in range(len(statistics))]
        written = [
            graph.call_function(aten.copy_.default, (source, made))
            for source, made in zip(statistics, updated, strict=True)
        ]
    news: list[Any] = []
    for source, copied, made, write in zip(statistics, copies, updated, written, strict=True):
        value = value_of(source)
        copied.meta = {**node.meta, "val": another_like(value)}
        made.meta = {**node.meta, "val": another_like(value)}
        write.meta = {**node.meta, "val": value}
        news.append(made.meta["val"])
    normalized.meta = {**node.meta, "val": (*values, *news)}
    node.replace_all_uses_with(normalized)
    graph.erase_node(node)
    for saved in list(normalized.users):
        for user in list(saved.users):
            if user.target is aten.native_batch_norm_backward.default and arguments_by_name(user)["train"]:
                for source, copied in zip(statistics, copies, strict=True):
                    user.replace_input_with(source, copied)
