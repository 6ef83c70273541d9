"""Inputs of the forward pass that the backward pass uses, saved as they are: under Inductor, as flat views.

Inductor converts what is four-dimensional to the layout that suits convolutions, and where the forward pass returns
an input, it returns the converted copy instead: memory that nobody planned. A flat view stays what it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import outputs_of, value_of
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, save_instead

_IMAGE_DIMENSIONS = 4


@dataclass(frozen=True)
class SaveInputsFlat(Rewrite[Node]):
    """Save images and the weights of convolutions as flat views; the backward pass gets `TakeInputsFlat`."""

    name = "save-inputs-flat"
    source = "Inductor's layout optimization, which looks at four-dimensional tensors only."
    preserves = Preserves("the shape of saved inputs, which are flat", outputs=False)
    n_outputs: int
    """How many of the outputs are the forward pass's own; the others are saved values."""

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the saved inputs that look like images."""
        return [value for value in outputs_of(module)[self.n_outputs :] if isinstance(value, Node) and _is_image(value)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Return views of them instead."""
        (end,) = module.graph.find_nodes(op="output")
        with module.graph.inserting_before(end):
            flat = {node: module.graph.call_function(torch.ops.aten.view.default, (node, [-1])) for node in sites}
        save_instead(module, self.n_outputs, flat)
        return module


def _is_image(node: Node) -> bool:
    value = value_of(node)
    is_tensor = node.op == "placeholder" and isinstance(value, torch.Tensor)
    return is_tensor and value.dim() == _IMAGE_DIMENSIONS and value.is_contiguous()
