"""The other half of `save_inputs_flat`: the backward pass takes flat views, and looks at them in their shapes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, call_like, put_behind

aten = torch.ops.aten


@dataclass(frozen=True)
class TakeInputsFlat(Rewrite[Node]):
    """Take some inputs as flat views of what they were."""

    name = "take-inputs-flat"
    source = "The forward pass saved them so; see `SaveInputsFlat`."
    preserves = Preserves("the shape of saved inputs, which are flat", inputs=False)
    names: tuple[str, ...]
    """The inputs."""

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the inputs of those names."""
        return [node for node in module.graph.find_nodes(op="placeholder") if node.name in self.names]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Put a view of the old shape behind the inputs for each of them."""
        first_op = list(module.graph.find_nodes(op="placeholder"))[-1].next
        for node in sites:
            put_behind(node, first_op, _shaped)
            node.meta["val"] = aten.view.default(value_of(node), [-1])
        return module


def _shaped(node: Node) -> Node:
    value: torch.Tensor = value_of(node)
    return call_like(node, node.graph, aten.view.default, node, list(value.shape))
