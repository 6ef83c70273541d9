"""A first estimate of how long an op runs: the larger of its arithmetic and its memory traffic, plus a fixed start."""

import math
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from lowtide.costs import PLAIN_MACHINE
from lowtide.frameworks.torch.hints import hinted_value_of
from lowtide.frameworks.torch.torch_internals import map_nodes, overload_of


def seconds_of(node: Node) -> float:
    """Estimate an op's run time in seconds on a plain machine, from its shapes: the "eager" price of the op."""
    traffic = sum(_bytes_of(hinted_value_of(argument)) for argument in node.all_input_nodes)
    traffic += _bytes_of(hinted_value_of(node))
    return PLAIN_MACHINE.seconds(traffic, _flops_of(node))


def _bytes_of(value: Any) -> int:
    return sum(
        math.prod(int(size) for size in leaf.shape) * leaf.element_size()
        for leaf in pytree.tree_leaves(value)
        if isinstance(leaf, torch.Tensor)
    )


def _flops_of(node: Node) -> int:
    overload = overload_of(node.target)
    count: Any = None if overload is None else flop_registry.get(overload.overloadpacket)
    if count is None:
        return 0
    args, kwargs = map_nodes((node.args, dict(node.kwargs)), hinted_value_of)
    return int(count(*args, **kwargs, out_val=hinted_value_of(node)))
