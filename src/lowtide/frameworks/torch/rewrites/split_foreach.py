"""Multi-tensor ops as one op per tensor, so that each update can run early (`SplitForeach`)."""

import operator
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import op_name
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite

FUSED_OPTIMIZERS = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")
"""Fused optimizers; their arguments are lists of tensors and floats."""


@dataclass(frozen=True)
class SplitForeach(Rewrite[Node]):
    """Split every `_foreach_*` and fused optimizer op over lists of n tensors into n ops over lists of one."""

    name = "split-foreach"
    source = "ATen's foreach kernels treat the tensors of a list independently."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the ops over several tensors."""
        return [node for node in module.graph.nodes if _is_over_list(node) and len(_tensors(node)) > 1]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        for node in sites:
            _split(module.graph, node, len(_tensors(node)))
        return module


def _is_over_list(node: Node) -> bool:
    name = op_name(node.target)
    return name.startswith("_foreach_") or name in FUSED_OPTIMIZERS


def _tensors(node: Node) -> Sequence[Any]:
    tensors: Any = node.args[0] if node.args else ()
    return tensors


def _split(graph: Graph, node: Node, length: int) -> None:
    target: Any = node.target
    readers: dict[int, list[Node]] = {}
    for user in list(node.users):
        index: Any = user.args[1]
        readers.setdefault(int(index), []).append(user)
    values = value_of(node)
    for index in range(length):
        with graph.inserting_before(node):
            args = tuple(_one_of(argument, index, length) for argument in node.args)
            part = graph.call_function(
                target, args, {name: _one_of(argument, index, length) for name, argument in node.kwargs.items()}
            )
            if values is not None:
                part.meta["val"] = [values[index]]  # the same tensor, from another op
            for reader in readers.get(index, ()):
                element = graph.call_function(operator.getitem, (part, 0))
                element.meta = dict(reader.meta)
                reader.replace_all_uses_with(element)
                graph.erase_node(reader)
    graph.erase_node(node)


def _one_of(argument: Any, index: int, length: int) -> Any:
    """Return an argument for one tensor: one entry of a list of `length`; others are the same for all."""
    return [argument[index]] if _has_length(argument, length) else argument


def _has_length(argument: object, length: int) -> bool:
    return isinstance(argument, Sized) and len(argument) == length
