"""The other half of `save_masks_as_bytes`: the backward pass takes the bytes of masks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.mask_bytes import from_bytes, is_mask_for_kernels
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, put_behind


@dataclass(frozen=True)
class TakeMasksAsBytes(Rewrite[Node]):
    """Take some masks as bytes."""

    name = "take-masks-as-bytes"
    source = "The forward pass saved them so; see `SaveMasksAsBytes`."
    preserves = Preserves("the type of saved masks, which are bytes", inputs=False)
    names: tuple[str, ...]
    """The inputs."""

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the inputs of those names that are masks."""
        inputs = [node for node in module.graph.find_nodes(op="placeholder") if node.name in self.names]
        return [node for node in inputs if is_mask_for_kernels(node)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Put a mask behind the inputs for each of them."""
        first_op = list(module.graph.find_nodes(op="placeholder"))[-1].next
        for node in sites:
            put_behind(node, first_op, from_bytes)
            node.meta["val"] = value_of(node).view(torch.uint8)
        return module
