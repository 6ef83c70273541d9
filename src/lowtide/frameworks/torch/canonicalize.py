"""Constructors that look at another tensor only for its form are given that form, so that they keep nothing alive."""

from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.hints import is_symbolic

aten = torch.ops.aten

_FILLED: dict[Any, float | None] = {
    aten.zeros_like.default: 0,
    aten.ones_like.default: 1,
    aten.full_like.default: None,
    aten.new_zeros.default: 0,
    aten.new_ones.default: 1,
    aten.new_full.default: None,
}
_FILL_ARGUMENT = {aten.full_like.default: 1, aten.new_full.default: 2}
_EMPTY = {aten.empty_like.default, aten.new_empty.default, aten.new_empty_strided.default}


def canonicalize(graph: Graph) -> None:
    """Replace `*_like` and `new_*` constructors by constructors of the same dtype, shape and strides."""
    for node in list(graph.nodes):
        if node.target not in _FILLED and node.target not in _EMPTY:
            continue
        value = node.meta["val"]
        if value.layout != torch.strided or value.is_quantized or is_symbolic(value):
            continue
        with graph.inserting_before(node):
            replacement = _constructor(graph, node, value)
        replacement.meta = dict(node.meta)
        node.replace_all_uses_with(replacement)
        graph.erase_node(node)


def _constructor(graph: Graph, node: Node, value: torch.Tensor) -> Node:
    form: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
    shape = list(value.shape)
    if node.target in _EMPTY:
        return graph.call_function(aten.empty_strided.default, (shape, list(value.stride())), form)
    target: Any = node.target
    fill: Any = _FILLED[target]
    if fill is None:
        position = _FILL_ARGUMENT[target]
        fill = node.args[position] if len(node.args) > position else node.kwargs["fill_value"]
    if value.is_contiguous():
        return graph.call_function(aten.full.default, (shape, fill), form)
    empty = graph.call_function(aten.empty_strided.default, (shape, list(value.stride())), form)
    empty.meta = dict(node.meta)
    return graph.call_function(aten.fill_.Scalar, (empty, fill))
