"""`torch.compile` with the backend "lowtide", as PyTorch types it: in part."""
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn


def compile_in_place(model: nn.Module, options: Mapping[str, Any]) -> None:
    """Compile a module in its place: calls of it run compiled, all else about it stays."""
    model.compile(backend="lowtide", options=dict(options))


def compiled(function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function compiled."""
    return torch.compile(function, backend="lowtide", options=dict(options))


def kept_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs outside of the graph of whoever calls it."""
    return torch.compiler.disable(function)
