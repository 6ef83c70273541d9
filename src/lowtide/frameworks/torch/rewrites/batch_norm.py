"""Batch normalization without in-place updates, so that it can be recomputed (`SplitBatchNorm`)."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, origin_of

aten = torch.ops.aten
_STATISTICS = ("running_mean", "running_var")
_FIRST_NEW = 3
"""The functional form returns three results, then the new statistics."""


@dataclass(frozen=True)
class SplitBatchNorm(Rewrite[Node]):
    """Replace every `native_batch_norm` in training mode by its functional form on copies of the statistics.

    The backward op gets the copies too, without reading them: this keeps them alive while the forward op may be
    recomputed.
    """

    name = "split-batch-norm"
    source = "PyTorch's functionalization uses the same op, `_native_batch_norm_legit_functional`."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the ops that update statistics."""
        nodes = module.graph.find_nodes(op="call_function", target=aten.native_batch_norm.default)
        return [node for node in nodes if _updates(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        for node in sites:
            _split(module.graph, node)
        return module


def _updates(node: Node) -> bool:
    given = arguments_by_name(node)
    return bool(given["training"]) and all(isinstance(given[name], Node) for name in _STATISTICS)


def _split(graph: Graph, node: Node) -> None:
    given = arguments_by_name(node)
    statistics: list[Node] = [given[name] for name in _STATISTICS]
    with graph.inserting_before(node):
        copies = [graph.call_function(aten.clone.default, (source,)) for source in statistics]
        given.update(zip(_STATISTICS, copies, strict=True))
        normalized = graph.call_function(aten._native_batch_norm_legit_functional.default, tuple(given.values()))
        places = range(_FIRST_NEW, _FIRST_NEW + len(statistics))
        updated = [graph.call_function(operator.getitem, (normalized, place)) for place in places]
        written = [
            graph.call_function(aten.copy_.default, (source, new))
            for source, new in zip(statistics, updated, strict=True)
        ]
    for made in (*copies, normalized, *updated, *written):
        made.meta = origin_of(node)
    node.replace_all_uses_with(normalized)
    graph.erase_node(node)
    for saved in list(normalized.users):
        for user in list(saved.users):
            if user.target is aten.native_batch_norm_backward.default and arguments_by_name(user)["train"]:
                for source, copied in zip(statistics, copies, strict=True):
                    user.replace_input_with(source, copied)
