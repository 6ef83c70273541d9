"""Masks that the forward pass makes for the backward pass, saved as bytes: under Inductor, on the CPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import outputs_of
from lowtide.frameworks.torch.rewrites.mask_bytes import as_bytes, is_mask_for_kernels
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, save_instead


@dataclass(frozen=True)
class SaveMasksAsBytes(Rewrite[Node]):
    """Save a byte for each bool of a mask; the backward pass gets `TakeMasksAsBytes`."""

    name = "save-masks-as-bytes"
    source = "Inductor's vectors store bools one by one; see `mask_bytes`."
    preserves = Preserves("the type of saved masks, which are bytes", outputs=False)
    n_outputs: int
    """How many of the outputs are the forward pass's own; the others are saved values."""
    names: tuple[str, ...]
    """The values, of those that are saved."""

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the masks that are saved, are of these names, and are not the caller's."""
        results = outputs_of(module)
        own, saved = results[: self.n_outputs], results[self.n_outputs :]
        masks = [value for value in saved if isinstance(value, Node) and value.name in self.names and value not in own]
        return [mask for mask in masks if mask.op == "call_function" and is_mask_for_kernels(mask)]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Return their bytes instead."""
        made = dict[Node, Node]()
        for mask in sites:
            with module.graph.inserting_before(mask.next):
                made[mask] = as_bytes(mask)
        save_instead(module, self.n_outputs, made)
        return module
