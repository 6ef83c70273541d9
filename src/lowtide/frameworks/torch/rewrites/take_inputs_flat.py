"""The other half of `save_inputs_flat`: the backward pass takes flat views, and looks at them in their shapes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, origin_of

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
        last_input = list(module.graph.find_nodes(op="placeholder"))[-1]
        for node in sites:
            value: torch.Tensor = value_of(node)
            with module.graph.inserting_after(last_input):
                shaped = module.graph.call_function(aten.view.default, (node, list(value.shape)))
            shaped.meta = origin_of(node)
            node.replace_all_uses_with(shaped, delete_user_cb=lambda user, shaped=shaped: user is not shaped)
            node.meta["val"] = aten.view.default(value, [-1])
        return module
