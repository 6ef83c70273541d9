"""Multi-tensor ops are split into one op per tensor, so that each update can run as soon as its gradient is there."""

import operator
from collections.abc import Sequence
from typing import Any

from torch.fx import Graph, Node

from lowtide.frameworks.torch.torch_internals import op_name

FUSED_OPTIMIZERS = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")
"""The fused optimizers; each takes lists of tensors and its settings as floats."""


def split_foreach(graph: Graph) -> None:
    """Split every `_foreach_*` and fused optimizer op over lists of n tensors into n ops over lists of one.

    The kernels treat the tensors of a list one after another and independently, so results stay bit-equal.
    """
    for node in list(graph.nodes):
        name = op_name(node.target)
        tensors: Any = node.args[0] if node.args else ()
        if (name.startswith("_foreach_") or name in FUSED_OPTIMIZERS) and len(tensors) > 1:
            _split(graph, node, len(tensors))


def _split(graph: Graph, node: Node, length: int) -> None:
    readers: dict[int, list[Node]] = {}
    for user in list(node.users):
        readers.setdefault(int(user.args[1]), []).append(user)  # pyright: ignore[reportArgumentType]
    values = node.meta.get("val")
    for index in range(length):
        with graph.inserting_before(node):
            part = graph.call_function(
                node.target,  # pyright: ignore[reportArgumentType]
                tuple(_one_of(argument, index, length) for argument in node.args),
                {name: _one_of(argument, index, length) for name, argument in node.kwargs.items()},
            )
            if values is not None:
                part.meta["val"] = [values[index]]
            for reader in readers.get(index, ()):
                element = graph.call_function(operator.getitem, (part, 0))
                element.meta = dict(reader.meta)
                reader.replace_all_uses_with(element)
                graph.erase_node(reader)
    graph.erase_node(node)


def _one_of(argument: Any, index: int, length: int) -> Any:
    """Return the part of an argument that concerns one tensor: lists of any other length concern none."""
    return [argument[index]] if isinstance(argument, Sequence) and len(argument) == length else argument  # pyright: ignore
