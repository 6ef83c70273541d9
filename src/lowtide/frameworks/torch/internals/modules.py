"""Modules whose parameters and buffers are other tensors for a while."""
# pyright: reportPrivateUsage=false

from contextlib import AbstractContextManager

import torch
from torch import nn
from torch.nn.utils.stateless import _reparametrize_module


def reparametrized(module: nn.Module, tensors: dict[str, torch.Tensor]) -> AbstractContextManager[None]:
    """Let a module use other tensors under the names of its own, tied ones included."""
    return _reparametrize_module(module, tensors, tie_weights=True)
