"""Copies of what inputs held, saved where a program overwrites them and its backward pass still needs that."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.aot_autograd import inputs_overwritten_later
from lowtide.frameworks.torch.internals.nodes import outputs_of, storages_of
from lowtide.frameworks.torch.reading.effects import mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, origin_of


@dataclass(frozen=True)
class SaveOldContents(Rewrite[int]):
    """Let a forward pass save a copy of whatever lies in an input that is overwritten before the backward pass.

    PyTorch's partitioner runs ops again in the backward pass from inputs, even if the forward pass, or the runtime
    after it, overwrites these. Gradients would be wrong then, or autograd would refuse them.
    """

    name = "save-old-contents"
    source = "Copy on write, for what the backward pass reads."
    preserves = Preserves("saved values that the program overwrites after it read them", outputs=False)
    n_outputs: int
    """How many of the outputs are the forward pass's own; the others are saved values."""

    def sites(self, module: GraphModule) -> Sequence[int]:
        """Return the positions of the outputs to copy."""
        written = [node for call in module.graph.nodes for node in nodes_in(mutated_arguments(call))]
        written += inputs_overwritten_later(module, self.n_outputs)
        overwritten = storages_of(*written) & storages_of(*module.graph.find_nodes(op="placeholder"))
        results = outputs_of(module)
        return [place for place in range(self.n_outputs, len(results)) if storages_of(results[place]) & overwritten]

    def apply(self, module: GraphModule, sites: Sequence[int]) -> GraphModule:
        """Put each copy behind what it is a copy of."""
        graph = module.graph
        last_input = list(graph.find_nodes(op="placeholder"))[-1]
        (end,) = graph.find_nodes(op="output")
        results = outputs_of(module)
        for place in sites:
            saved: Node = results[place]
            with graph.inserting_after(last_input if saved.op == "placeholder" else saved):
                results[place] = copied = graph.call_function(torch.ops.aten.clone.default, (saved,))
            copied.meta = origin_of(saved)
        end.args = (tuple(results),)
        return module
