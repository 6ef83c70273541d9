"""Attention that PyTorch captured as plain products because the device "meta" has no kernels to choose from."""

import warnings

import torch
from torch.fx import GraphModule

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.hints import hinted_value_of
from lowtide.frameworks.torch.internals.operators import op_name

_MADE_BY_ATTENTION_ALONE = "_safe_softmax"


def warn_of_math_attention(module: GraphModule) -> None:
    """Warn where attention on the device "meta" became products with scores of length x length.

    A device would run a fused kernel, which never holds them: plans of such a program are of one that nobody runs.
    """
    found = [
        node
        for node in module.graph.nodes
        if op_name(node.target) == _MADE_BY_ATTENTION_ALONE
        and any(
            isinstance(leaf, torch.Tensor) and leaf.device.type == "meta"
            for leaf in pytree.tree_leaves(hinted_value_of(node))
        )
    ]
    if found:
        warnings.warn(
            f'lowtide: {len(found)} attentions on the device "meta" were captured as products with scores of length x '
            f"length ({found[0].name} is the first), which a fused kernel never holds; call the kernel by its name, "
            "such as torch.ops.aten._scaled_dot_product_flash_attention",
            stacklevel=2,
        )
