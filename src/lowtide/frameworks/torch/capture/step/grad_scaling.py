"""Gradient scaling in a captured step: the scale is an input of the graph, the fused kernel decides whether to skip.

The scale itself is updated after the graph has run, by the scaler, from the graph's own finding of infinities.
"""

from functools import partial

from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from lowtide.errors import UnsupportedError
from lowtide.frameworks.torch.capture.step.raw_step import raw_step


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
