"""Gradients of a convolution that no op reads are not computed: a plan may run its backward pass once for each."""

import operator
from typing import Any

import torch
from torch.fx import Graph

_MASK = 10
"""The place of the argument that says which gradients are computed: of the image, the weight, the bias."""


def compute_only_wanted(graph: Graph) -> None:
    """Ask every backward pass of a convolution for the gradients alone that something reads.

    PyTorch computes each gradient by a kernel of its own, so those that stay have the same bits. O(nodes).
    """
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default):
        elements = list(node.users)
        if len(node.args) <= _MASK or any(user.target is not operator.getitem for user in elements):
            continue
        taken = {user.args[1] for user in elements if user.users}
        wanted = [asked and place in taken for place, asked in enumerate(node.args[_MASK])]
        if not any(wanted) or wanted == list(node.args[_MASK]):
            continue
        node.update_arg(_MASK, wanted)
        for user in elements:
            if not user.users:
                graph.erase_node(user)
        values: tuple[Any, ...] | None = node.meta.get("val")
        if values is not None:
            pairs = zip(values, wanted, strict=True)
            node.meta["val"] = tuple(value if is_wanted else None for value, is_wanted in pairs)
