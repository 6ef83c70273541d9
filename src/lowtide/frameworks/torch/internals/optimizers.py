"""Optimizers: hooks that a graph cannot call, and the mark of a step that learning rate schedulers look for."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

from typing import Any

import torch
from torch.optim import Optimizer

SYMBOLIC_CHOICES: dict[str, Any] = {"max": torch.sym_max, "min": torch.sym_min}
"""What `max` and `min` are for symbolic scalars."""


def has_step_hooks(optimizer: Optimizer) -> bool:
    """Tell whether anything is called before or after an optimizer's step."""
    hooks: Any = optimizer
    return bool(hooks._optimizer_step_pre_hooks or hooks._optimizer_step_post_hooks)


def has_gradient_hooks(parameter: torch.Tensor) -> bool:
    """Tell whether anything is called when a parameter's gradient is there."""
    hooked: Any = parameter
    return bool(hooked._backward_hooks or hooked._post_accumulate_grad_hooks)


def note_step(optimizer: Optimizer) -> None:
    """Mark the optimizer as learning rate schedulers expect it after a step."""
    marked: Any = optimizer
    marked._opt_called = True
