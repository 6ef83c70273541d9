"""DTensors as what they are on one rank: a plain tensor that holds this rank's part, and how to wrap one again."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnnecessaryIsInstance=false

import sys
from typing import Any

import torch


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a DTensor that this rank holds, in the same storage; another tensor as it is."""
    return tensor._local_tensor if is_distributed(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]


def is_distributed(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is a DTensor; nothing is imported to find out."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def distributed_as(part: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return a DTensor with this part, laid out as another one; the part itself, where the other is no DTensor.

    Autograd passes through it: the part gets the gradient of what it holds.
    """
    if not is_distributed(other):
        return part
    whole: Any = other
    return type(whole).from_local(
        part, whole.device_mesh, whole.placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )
