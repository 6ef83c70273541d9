"""Inputs that a program overwrites while its backward pass still needs what they held: a copy of that is saved."""

import torch
from torch.fx import GraphModule

from lowtide.frameworks.torch.backend.compiler_internals import compute_fake, inputs_overwritten_later, outputs_of
from lowtide.frameworks.torch.effects import mutated_arguments
from lowtide.frameworks.torch.lowering import nodes_in
from lowtide.frameworks.torch.torch_internals import storages_of


def save_old_contents(forward: GraphModule, n_forward_outputs: int) -> None:
    """Let a forward pass save a copy of whatever lies in an input that is overwritten before the backward pass.

    PyTorch's partitioner runs ops again in the backward pass from inputs, and takes no notice of whether the forward
    pass, or the runtime after it, overwrites them: gradients would be wrong, or autograd would refuse them.
    """
    graph = forward.graph
    written = [node for call in graph.nodes for node in nodes_in(mutated_arguments(call))]
    written += inputs_overwritten_later(forward, n_forward_outputs)
    inputs = graph.find_nodes(op="placeholder")
    overwritten = storages_of(*written) & storages_of(*inputs)
    if not overwritten:
        return
    (end,) = graph.find_nodes(op="output")
    results = outputs_of(forward)
    for place in range(n_forward_outputs, len(results)):
        saved = results[place]
        if storages_of(saved) & overwritten:
            with graph.inserting_after(inputs[-1] if saved.op == "placeholder" else saved):
                copied = graph.call_function(torch.ops.aten.clone.default, (saved,))
            copied.meta = {**saved.meta, "val": compute_fake(copied)}
            results[place] = copied
    end.args = (tuple(results),)
    forward.recompile()
