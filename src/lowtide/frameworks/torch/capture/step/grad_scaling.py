"""Gradient scaling in a captured step: the scale is an input of the graph, the fused kernel decides whether to skip.

A compiler that fuses by itself is given the update spelled out, and what it changed put back where it is skipped.
The scale itself is updated after the graph has run, by the scaler, from the graph's own finding of infinities.
"""

from functools import partial

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.frameworks.torch.capture.step.raw_step import raw_step
from lowtide.frameworks.torch.internals.optimizers import unscale_by_plain_ops


def active(scaler: object) -> GradScaler | None:
    """Return a scaler that scales, None for one that is switched off; raises UsageError for what is none."""
    if not isinstance(scaler, GradScaler | None):
        raise UsageError(f"grad_scaler is a {type(scaler).__name__}; give a torch.amp.GradScaler, or leave it out")
    return scaler if scaler is not None and scaler.is_enabled() else None


def refuse_unless_fused(optimizer: Optimizer) -> None:
    """Raise UnsupportedError for an optimizer that cannot skip an update without looking at values."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        raise UnsupportedError(
            f"a GradScaler skips updates by their values, which only fused optimizers do in a graph; "
            f"make {type(optimizer).__name__} with fused=True, or train in bfloat16 without a scaler"
        )


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


def scaled_step_spelled_out(scaler: GradScaler, optimizer: Optimizer) -> None:
    """Run any optimizer's update on unscaled gradients, and put back all of it where one of them was infinite."""
    with torch.no_grad():
        skips = unscale_by_plain_ops(scaler, optimizer) > 0
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        kept = [(each, each.clone()) for each in parameters]
        states = [(entries, dict(entries)) for each in parameters if (entries := optimizer.state.get(each))]
        for _, before in states:
            before.update((key, value.clone()) for key, value in before.items() if isinstance(value, torch.Tensor))
        raw_step(optimizer)
        kept += [
            (now[key], old) for now, before in states for key, old in before.items() if isinstance(old, torch.Tensor)
        ]
        for value, old in kept:
            value.copy_(torch.where(skips, old, value))
