"""Rewrites of values saved for backward under Inductor.

Inductor returns a copy of four-dimensional inputs in the memory format of convolutions, which no plan knows. Its CPU
code stores bytes in a twentieth of the time of bools (measured with PyTorch 2.13).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import outputs_of, value_of
from lowtide.frameworks.torch.internals.operators import is_element_wise
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, call_like, replace_uses, save_instead

aten = torch.ops.aten
_IMAGE_DIMENSIONS = 4
_CONVERT = torch.ops.prims.convert_element_type.default
_NOT_EQUAL = aten.ne.Scalar


@dataclass(frozen=True)
class SaveInputsFlat(Rewrite[Node]):
    """Save images and weights of convolutions as flat views, for `TakeInputsFlat`."""

    name = "save-inputs-flat"
    source = "Inductor only converts four-dimensional tensors."
    preserves = Preserves("the shape of saved inputs, which are flat", outputs=False)
    n_outputs: int

    def sites(self, module: GraphModule) -> Sequence[Node]:
        return [value for value in outputs_of(module)[self.n_outputs :] if isinstance(value, Node) and _is_image(value)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        (end,) = module.graph.find_nodes(op="output")
        with module.graph.inserting_before(end):
            flat = {node: module.graph.call_function(aten.view.default, (node, [-1])) for node in sites}
        save_instead(module, self.n_outputs, flat)
        return module


def _is_image(node: Node) -> bool:
    value = value_of(node)
    is_tensor = node.op == "placeholder" and isinstance(value, torch.Tensor)
    return is_tensor and value.dim() == _IMAGE_DIMENSIONS and value.is_contiguous()


@dataclass(frozen=True)
class TakeInputsFlat(Rewrite[Node]):
    """Read some inputs of a backward pass from flat views."""

    name = "take-inputs-flat"
    source = "The forward pass saved flat views; see `SaveInputsFlat`."
    preserves = Preserves("the shape of saved inputs, which are flat", inputs=False)
    names: tuple[str, ...]

    def sites(self, module: GraphModule) -> Sequence[Node]:
        return [node for node in module.graph.find_nodes(op="placeholder") if node.name in self.names]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        first_op = list(module.graph.find_nodes(op="placeholder"))[-1].next
        for node in sites:
            replace_uses(node, first_op, _shaped)
            node.meta["val"] = aten.view.default(value_of(node), [-1])
        return module


def _shaped(node: Node) -> Node:
    value: torch.Tensor = value_of(node)
    return call_like(node, node.graph, aten.view.default, node, list(value.shape))


def is_mask_for_kernels(node: Node) -> bool:
    """Return whether a value is a CPU bool tensor that only element-wise ops read."""
    value = value_of(node)
    is_mask = isinstance(value, Tensor) and value.dtype == torch.bool and value.device.type == "cpu"
    return is_mask and all(user.op == "output" or is_element_wise(user.target) for user in node.users)


def as_bytes(mask: Node) -> Node:
    """Return the bytes that a mask was computed from, or a new node."""
    if mask.target is _NOT_EQUAL and (read := mask.all_input_nodes[0]).target is _CONVERT:
        (stored,) = read.all_input_nodes
        if stored.op == "call_function" and value_of(stored).dtype == torch.uint8:
            return stored
    graph = mask.graph
    return call_like(mask, graph, _CONVERT, call_like(mask, graph, _CONVERT, mask, torch.float32), torch.uint8)


def from_bytes(stored: Node) -> Node:
    graph = stored.graph
    return call_like(stored, graph, _NOT_EQUAL, call_like(stored, graph, _CONVERT, stored, torch.float32), 0)


@dataclass(frozen=True)
class SaveMasksAsBytes(Rewrite[Node]):
    """Save one byte for each bool of a mask, for `TakeMasksAsBytes`."""

    name = "save-masks-as-bytes"
    source = "Inductor's CPU code stores bools one by one."
    preserves = Preserves("the type of saved masks, which are bytes", outputs=False)
    n_outputs: int
    names: tuple[str, ...]

    def sites(self, module: GraphModule) -> Sequence[Node]:
        results = outputs_of(module)
        own, saved = results[: self.n_outputs], results[self.n_outputs :]
        masks = [value for value in saved if isinstance(value, Node) and value.name in self.names and value not in own]
        return [mask for mask in masks if mask.op == "call_function" and is_mask_for_kernels(mask)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        made = dict[Node, Node]()
        for mask in sites:
            with module.graph.inserting_before(mask.next):
                made[mask] = as_bytes(mask)
        save_instead(module, self.n_outputs, made)
        return module


@dataclass(frozen=True)
class TakeMasksAsBytes(Rewrite[Node]):
    """Read some masks of a backward pass from bytes."""

    name = "take-masks-as-bytes"
    source = "The forward pass saved bytes; see `SaveMasksAsBytes`."
    preserves = Preserves("the type of saved masks, which are bytes", inputs=False)
    names: tuple[str, ...]

    def sites(self, module: GraphModule) -> Sequence[Node]:
        inputs = [node for node in module.graph.find_nodes(op="placeholder") if node.name in self.names]
        return [node for node in inputs if is_mask_for_kernels(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        first_op = list(module.graph.find_nodes(op="placeholder"))[-1].next
        for node in sites:
            replace_uses(node, first_op, from_bytes)
            node.meta["val"] = value_of(node).view(torch.uint8)
        return module
