"""Optimizers and `GradScaler`: hooks, step marks and state."""
# pyright: reportAttributeAccessIssue=false, reportPrivateUsage=false, reportUnknownMemberType=false

from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks as post_hooks
from torch.optim.optimizer import _global_optimizer_pre_hooks as pre_hooks

SYMBOLIC_CHOICES: dict[str, Any] = {"max": torch.sym_max, "min": torch.sym_min}


def has_step_hooks(optimizer: Optimizer) -> bool:
    """Return whether an update of this optimizer calls hooks, also global ones."""
    own: Any = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return bool(own or pre_hooks or post_hooks)


def has_gradient_hooks(parameter: torch.Tensor) -> bool:
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


def note_step(optimizer: Optimizer) -> None:
    optimizer._opt_called = True


def live_scale(scaler: GradScaler, device: torch.device) -> torch.Tensor:
    state: Any = scaler
    if state._scale is None:
        state._lazy_init_scale_growth_tracker(device)
    scale: Any = state._scale
    return scale


def growth_of(scaler: GradScaler) -> torch.Tensor:
    """Return the counter of steps without infinities."""
    state: Any = scaler
    return state._growth_tracker


@contextmanager
def scaling_by(scaler: GradScaler, scale: torch.Tensor) -> Generator[None]:
    """Give a scaler another scale in this context."""
    state: Any = scaler
    before = (state._scale, state._growth_tracker, state._per_optimizer_states)
    optimizer_states: defaultdict[Any, Any] = defaultdict(before[2].default_factory)
    state._scale, state._growth_tracker, state._per_optimizer_states = scale, scale, optimizer_states
    try:
        yield
    finally:
        state._scale, state._growth_tracker, state._per_optimizer_states = before


def unscale_by_plain_ops(scaler: GradScaler, optimizer: Optimizer) -> torch.Tensor:
    """Unscale gradients once per step, by ops that can be fused, and return the flag of infinities."""
    state: Any = scaler
    known = state._per_optimizer_states[id(optimizer)]
    if not known["found_inf_per_device"]:
        factor = state._scale.double().reciprocal().float()
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        is_wrong = torch.stack([gradient.isfinite().all().logical_not() for gradient in gradients]).any()
        for gradient in gradients:
            gradient.mul_(factor)
        known["found_inf_per_device"] = {is_wrong.device: is_wrong.float()}
    return found_infinities(scaler, optimizer)


def found_infinities(scaler: GradScaler, optimizer: Optimizer) -> torch.Tensor:
    (flag,) = scaler._found_inf_per_device(optimizer).values()
    return flag


def update_scale(scaler: GradScaler, optimizer: Optimizer, flag: torch.Tensor) -> None:
    scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {flag.device: flag}
    scaler.update()
