"""Rewrites that save inputs for the backward pass as flat views, under Inductor.

Inductor converts four-dimensional tensors to the memory format of convolutions, and returns the converted copy of an
input, which no plan knows. It does not convert flat views.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import outputs_of, value_of
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, call_like, replace_uses, save_instead

aten = torch.ops.aten
_IMAGE_DIMENSIONS = 4


@dataclass(frozen=True)
class SaveInputsFlat(Rewrite[Node]):
    """Save images and weights of convolutions as flat views, for `TakeInputsFlat`."""

    name = "save-inputs-flat"
    source = "Inductor only converts four-dimensional tensors."
    preserves = Preserves("the shape of saved inputs, which are flat", outputs=False)
    n_outputs: int
    """Outputs of the forward pass itself; the others are saved values."""

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the saved inputs with the shape of images."""
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
    """The inputs."""

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
