"""Convolutions as Inductor runs them: the channels of images stand together, and weights are copied to match.

Inductor decides that after a program is planned; a plan that knows nothing of it may need more once it is compiled.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.hints import hinted_value_of, stand_in
from lowtide.frameworks.torch.internals.inductor import lays_images_out
from lowtide.frameworks.torch.internals.nodes import compute_fake
from lowtide.frameworks.torch.reading.scratch import scratch_bytes

_CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)
_CHANNELS_LAST = (0, 2, 3, 1)


def scratch_under_inductor(module: GraphModule) -> Callable[[Node], int]:
    """Return what tells the scratch of a program's nodes, as `scratch_bytes` does, where Inductor compiles it."""
    if not lays_images_out(module):
        return scratch_bytes
    return lambda node: scratch_bytes(node, _laid_out if node.target in _CONVOLUTIONS else hinted_value_of)


def _laid_out(node: Node) -> Any:
    """Return what a convolution is given for a node: what the program computes is made with its channels together."""
    value = hinted_value_of(node)
    is_image = isinstance(value, torch.Tensor) and value.dim() == len(_CHANNELS_LAST)
    if not is_image or node.op != "call_function":
        return value
    if node.target is torch.ops.aten.slice.Tensor:  # one side of what was concatenated: it lies within both
        return compute_fake(node, _laid_out)
    strides, step = [0] * value.dim(), 1
    for dimension in reversed(_CHANNELS_LAST):
        strides[dimension] = step
        step *= value.shape[dimension]
    return stand_in(value.shape, strides, value.dtype, value.device)
