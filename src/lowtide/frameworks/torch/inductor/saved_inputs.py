"""Inputs of the forward pass that the backward pass uses, saved as they are."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.backend.compiler_internals import compute_fake, outputs_of

_IMAGE_DIMENSIONS = 4


def save_inputs_flat(
    forward: GraphModule, backward: GraphModule, n_forward_outputs: int
) -> tuple[GraphModule, GraphModule]:
    """Save images and the weights of convolutions as flat views; changes both graphs and returns them.

    Inductor converts what is four-dimensional to the layout that suits convolutions, and where the forward pass returns
    an input, it returns the converted copy instead: memory that nobody planned. A flat view stays what it is.
    """
    saved = outputs_of(forward)[n_forward_outputs:]
    inputs = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    flattened = {node: _flat_view(forward, node) for node in saved if isinstance(node, Node) and _is_image(node)}
    (output,) = forward.graph.find_nodes(op="output")
    output.args = (tuple(flattened.get(value, value) for value in [*outputs_of(forward)[:n_forward_outputs], *saved]),)
    for node, flat in flattened.items():
        _restore_shape(backward, inputs[node.name], flat)
    return forward, backward


def _is_image(node: Node) -> bool:
    value = node.meta.get("val")
    return (
        node.op == "placeholder"
        and isinstance(value, Tensor)
        and value.dim() == _IMAGE_DIMENSIONS
        and value.is_contiguous()
    )


def _flat_view(module: GraphModule, node: Node) -> Node:
    (output,) = module.graph.find_nodes(op="output")
    with module.graph.inserting_before(output):
        flat = module.graph.call_function(torch.ops.aten.view.default, (node, [-1]))
    flat.meta["val"] = compute_fake(flat)
    return flat


def _restore_shape(module: GraphModule, node: Node, flat: Node) -> None:
    """Let a graph take a flat view, and look at it in its shape."""
    shape = list(node.meta["val"].shape)
    with module.graph.inserting_after(_last_placeholder(module)):
        shaped = module.graph.call_function(torch.ops.aten.view.default, (node, shape))
    shaped.meta = dict(node.meta)
    node.replace_all_uses_with(shaped, delete_user_cb=lambda user: user is not shaped)
    node.meta = {**node.meta, "val": flat.meta["val"]}


def _last_placeholder(module: GraphModule) -> Node:
    return list(module.graph.find_nodes(op="placeholder"))[-1]
