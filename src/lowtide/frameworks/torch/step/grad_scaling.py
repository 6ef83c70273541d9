"""Gradient scaling in a captured step: the scale is an input of the graph, and whether to skip is for the fused kernel.

The scale itself is updated after the graph has run, by the scaler, from the graph's own finding of infinities.
"""

from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from lowtide.errors import UnsupportedError
from lowtide.frameworks.torch.step.raw_step import raw_step


def active(scaler: GradScaler | None) -> GradScaler | None:
    """Return a scaler that scales, None for one that is switched off."""
    return scaler if scaler is not None and scaler.is_enabled() else None


def refuse_unless_fused(optimizer: Optimizer) -> None:
    """Raise UnsupportedError for an optimizer that cannot skip an update without looking at values."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        raise UnsupportedError(
            f"a GradScaler skips updates by their values, which only fused optimizers do in a graph; "
            f"make {type(optimizer).__name__} with fused=True, or train in bfloat16 without a scaler"
        )


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


def scaled_step(scaler: GradScaler, optimizer: Optimizer) -> None:
    """Let the scaler run the optimizer's update itself, without the hooks around it."""
    wrapped = vars(optimizer).get("step")
    vars(optimizer)["step"] = partial(raw_step, optimizer)
    try:
        scaler.step(optimizer)
    finally:
        del vars(optimizer)["step"]
        if wrapped is not None:
            vars(optimizer)["step"] = wrapped


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
