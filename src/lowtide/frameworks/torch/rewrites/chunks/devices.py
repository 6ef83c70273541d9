"""Where chunks may be: on the CPU, whose kernels were tried; elsewhere where rounding is enough."""

from enum import Enum

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals.nodes import value_of

_CPU = "cpu"


class Devices(Enum):
    """The devices whose work may be done in chunks."""

    CPU = "the CPU"
    ALL = "all, of which nobody has shown which kernels give equal bits"

    def has(self, node: Node) -> bool:
        """Tell whether a tensor lies on one of them."""
        return self is Devices.ALL or value_of(node).device.type == _CPU


def can_run(device: torch.device) -> bool:
    """Tell whether this machine can run ops on a device; a program may be captured for one that is not here."""
    here = torch.accelerator.current_accelerator(check_available=True)
    return device.type == _CPU or (here is not None and here.type == device.type)
