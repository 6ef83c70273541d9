"""Ops that keep no other tensor alive (`Canonicalize`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like

aten = torch.ops.aten

_FILLED: dict[Any, float | None] = {
    aten.zeros_like.default: 0,
    aten.ones_like.default: 1,
    aten.full_like.default: None,
    aten.new_zeros.default: 0,
    aten.new_ones.default: 1,
    aten.new_full.default: None,
}
_EMPTY = {aten.empty_like.default, aten.new_empty.default, aten.new_empty_strided.default}
_CONSTRUCTORS = _FILLED.keys() | _EMPTY
_COPY = aten.copy.default


@dataclass(frozen=True)
class Canonicalize(Rewrite[Node]):
    """Replace `*_like` and `new_*` constructors, and `copy`, by ops that keep no other tensor alive.

    `copy` of a slice would also allocate the slice's whole storage.
    """

    name = "canonicalize"
    source = "ATen's `*_like` and `new_*` constructors, and `copy`, do not read the contents of their first operand."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        calls = [node for node in module.graph.nodes if _is_plain(value_of(node))]
        return [node for node in calls if node.target in _CONSTRUCTORS or (node.target is _COPY and _is_cast(node))]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        for node in reversed(sites):  # while the values of operands are known
            replace = _cast if node.target is _COPY else _constructor
            with module.graph.inserting_before(node):
                replacement = replace(module.graph, node, value_of(node))
            node.replace_all_uses_with(replacement)
            module.graph.erase_node(node)
        return module


def _is_plain(value: object) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    return value.layout == torch.strided and not value.is_quantized and not is_symbolic(value)


def _is_cast(copy: Node) -> bool:
    form, source = (value_of(node) for node in copy.all_input_nodes) if len(copy.all_input_nodes) == 2 else (None, None)
    if not isinstance(form, torch.Tensor) or not isinstance(source, torch.Tensor) or is_symbolic(source):
        return False
    is_plain = form.device == source.device and not source.is_complex() and not form.is_complex()
    return is_plain and form.is_contiguous() and value_of(copy).is_contiguous()


def _cast(graph: Graph, node: Node, value: torch.Tensor) -> Node:
    source: Any = node.args[1]
    if value_of(source).shape != value.shape:
        source = call_like(node, graph, aten.expand.default, source, list(value.shape))
    form = {"dtype": value.dtype, "memory_format": torch.contiguous_format}
    return call_like(node, graph, aten._to_copy.default, source, **form)


def _constructor(graph: Graph, node: Node, value: torch.Tensor) -> Node:
    form: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
    shape, strides = list(value.shape), list(value.stride())
    if node.target not in _EMPTY and value.is_contiguous():
        return call_like(node, graph, aten.full.default, shape, _fill_of(node), **form)
    empty = call_like(node, graph, aten.empty_strided.default, shape, strides, **form)
    return empty if node.target in _EMPTY else call_like(node, graph, aten.fill_.Scalar, empty, _fill_of(node))


def _fill_of(node: Node) -> Any:
    target: Any = node.target
    fill: Any = _FILLED[target]
    return arguments_by_name(node)["fill_value"] if fill is None else fill
