"""The autograd node of a compiled graph: what it keeps for its backward pass, and when that is over."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

import torch

from lowtide.frameworks.torch.internals import pytree


def backward_of(results: Any) -> Any | None:
    """Return the node that AOTAutograd's backward pass runs in; None where nothing that came back has one."""
    for leaf in pytree.tree_leaves(results):
        node = leaf.grad_fn if isinstance(leaf, torch.Tensor) else None
        if node is not None and type(node).__name__ == "CompiledFunctionBackward":
            return node
    return None


def saved_by(node: Any) -> list[torch.Tensor]:
    """Return the tensors that a node keeps."""
    unchecked = getattr(node, "_tensors_no_vc_check", None) or []
    return [each for each in (*node.saved_tensors, *unchecked) if isinstance(each, torch.Tensor)]
