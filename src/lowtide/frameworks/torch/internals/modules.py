"""Modules: their names, and parameters and buffers that are other tensors for a while."""
# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from contextlib import AbstractContextManager

import torch
from torch import nn
from torch.nn.utils.stateless import _reparametrize_module


def reparametrized(module: nn.Module, tensors: dict[str, torch.Tensor]) -> AbstractContextManager[None]:
    """Let a module use other tensors under the names of its own, tied ones included."""
    return _reparametrize_module(module, tensors, tie_weights=True)


def name_in(outer: nn.Module, module: nn.Module) -> str | None:
    """Return the qualified name of a module in another one; None where it is not in there."""
    return next((name for name, inner in outer.named_modules() if inner is module), None)
