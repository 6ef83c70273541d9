"""Where chunks may be: on the CPU, whose kernels were tried; elsewhere where rounding is enough."""

from enum import Enum

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import value_of

_CPU = "cpu"


class ChunkDevices(Enum):
    """The devices whose work may be done in chunks."""

    CPU = "the CPU"
    ALL = "all, of which nobody has shown which kernels give equal bits"

    def has(self, node: Node) -> bool:
        """Tell whether what a node takes and makes lies on one of them."""
        if self is ChunkDevices.ALL:
            return True
        leaves = pytree.tree_leaves([value_of(each) for each in (node, *node.all_input_nodes)])
        return all(leaf.device.type == _CPU for leaf in leaves if isinstance(leaf, torch.Tensor))


def can_run(device: torch.device) -> bool:
    """Tell whether this machine can run ops on a device; a program may be captured for one that is not here."""
    here = torch.accelerator.current_accelerator(check_available=True)
    return device.type == _CPU or (here is not None and here.type == device.type)
