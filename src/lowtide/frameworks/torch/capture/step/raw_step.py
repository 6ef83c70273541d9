"""Running an optimizer's own update on stand-ins for its parameters, state and settings."""

from collections.abc import Callable, Generator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import Optimizer

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.internals.optimizers import has_gradient_hooks, has_step_hooks

Groups = list[dict[str, Any]]


@contextmanager
def swapped(
    optimizer: Optimizer,
    parameters: Sequence[torch.Tensor],
    state: MutableMapping[Any, dict[str, Any]],
    adjust: Callable[[Groups], None] | None = None,
) -> Generator[None]:
    """Swap an optimizer's parameters and state, and its settings by `adjust`; all is put back at the end."""
    kept_groups, kept_state = optimizer.param_groups, optimizer.state
    remaining = iter(parameters)
    groups: Groups = [{**group, "params": [next(remaining) for _ in group["params"]]} for group in kept_groups]
    if adjust is not None:
        adjust(groups)
    before = [settings_of(group) for group in groups]
    swapping: Any = optimizer
    swapping.param_groups, swapping.state = groups, state
    try:
        yield
        if [settings_of(group) for group in groups] != before:
            raise UnsupportedError(f"{type(optimizer).__name__} changes its settings in a step; no graph can hold that")
    finally:
        optimizer.param_groups, optimizer.state = kept_groups, kept_state


def settings_of(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group's settings that are no tensors, for comparison."""
    return {key: value for key, value in group.items() if key != "params" and not isinstance(value, torch.Tensor)}


def refuse_hooks(optimizer: Optimizer) -> None:
    """Raise UnsupportedError where hooks would be left out: those of the optimizer's step and of its parameters."""
    if has_step_hooks(optimizer):
        raise UnsupportedError(
            f"{type(optimizer).__name__} has step hooks, which a graph cannot call; use before_update or after_update"
        )
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if has_gradient_hooks(parameter):
                raise UnsupportedError(
                    f"a parameter of shape {tuple(parameter.shape)} has gradient hooks, which a graph cannot call; "
                    "change gradients in before_update"
                )


def unwrapped_step(optimizer: Optimizer) -> Any:
    """Return the function of the optimizer's update itself, without the hooks and graph breaks around it."""
    function: Any = type(optimizer).step
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def raw_step(optimizer: Optimizer) -> None:
    """Run the optimizer's update itself."""
    try:
        with torch.no_grad():
            unwrapped_step(optimizer)(optimizer)
    except TypeError as error:
        if "closure" not in str(error):
            raise
        raise UnsupportedError(
            f"{type(optimizer).__name__}.step needs a closure; only a step without arguments can be captured"
        ) from error
