"""The state of a `GradScaler`: its scale, what it counts, and the infinities that it found."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer


def live_scale(scaler: GradScaler, device: torch.device) -> torch.Tensor:
    """Return the tensor that holds the scale, which is made as the first `scale` would make it."""
    held: Any = scaler
    if held._scale is None:
        held._lazy_init_scale_growth_tracker(device)
    scale: Any = held._scale
    return scale


def growth_of(scaler: GradScaler) -> torch.Tensor:
    """Return the tensor that counts steps without infinities, of a scaler whose scale has been made."""
    held: Any = scaler
    return held._growth_tracker


@contextmanager
def scaling_by(scaler: GradScaler, scale: torch.Tensor) -> Generator[None]:
    """Let a scaler use another tensor as its scale, and forget at the end what it learned meanwhile."""
    held: Any = scaler
    kept = (held._scale, held._growth_tracker, held._per_optimizer_states)
    states: defaultdict[Any, Any] = defaultdict(kept[2].default_factory)
    held._scale, held._growth_tracker, held._per_optimizer_states = scale, scale, states
    try:
        yield
    finally:
        held._scale, held._growth_tracker, held._per_optimizer_states = kept


def unscale_spelled_out(scaler: GradScaler, optimizer: Optimizer) -> torch.Tensor:
    """Unscale an optimizer's gradients once by plain operations, and return the flag of infinite ones.

    PyTorch's own kernel for that writes over its arguments, so that a compiler could fuse nothing with it.
    """
    held: Any = scaler
    known = held._per_optimizer_states[id(optimizer)]
    if not known["found_inf_per_device"]:
        factor = held._scale.double().reciprocal().float()
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        is_wrong = torch.stack([gradient.isfinite().all().logical_not() for gradient in gradients]).any()
        for gradient in gradients:
            gradient.mul_(factor)
        known["found_inf_per_device"] = {is_wrong.device: is_wrong.float()}
    return found_infinities(scaler, optimizer)


def found_infinities(scaler: GradScaler, optimizer: Optimizer) -> torch.Tensor:
    """Return the flag of infinite gradients that a scaler found for an optimizer."""
    held: Any = scaler
    (flag,) = held._found_inf_per_device(optimizer).values()
    return flag


def update_scale(scaler: GradScaler, optimizer: Optimizer, flag: torch.Tensor) -> None:
    """Update the scale by what a graph found."""
    held: Any = scaler
    held._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {flag.device: flag}
    scaler.update()
