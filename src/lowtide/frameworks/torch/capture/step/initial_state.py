"""What an optimizer's state starts from, asked from the optimizer itself on parameters of one element."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from lowtide.core.errors import UsageError
from lowtide.frameworks.torch.capture.step.raw_step import raw_step, swapped

_FILLS = (0.5, 0.25)
"""Parameters and gradients are tried with two values: what the state takes from them is no constant."""
_NEGATIVE_ZERO = -0.0


class _Recording(dict[str, Any]):
    """State that remembers the first value of every entry, before an update changes it in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, Any] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        self.first.setdefault(key, value.clone() if isinstance(value, torch.Tensor) else value)
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]


def initial_values(optimizer: Optimizer, wanted: Sequence[tuple[int, str]]) -> list[float]:
    """Return the number that fills each wanted state entry (parameter position and key) before the first update.

    Raises UsageError for an entry that starts from anything but one number.
    """
    if not wanted:
        return []
    first, second = (_states_before_update(optimizer, fill) for fill in _FILLS)
    return [_number(optimizer, key, first[position].get(key), second[position].get(key)) for position, key in wanted]


def _states_before_update(optimizer: Optimizer, fill: float) -> list[dict[str, Any]]:
    live = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    parameters: list[torch.Tensor] = []
    for parameter in live:
        small = torch.full((1,) * parameter.dim(), fill, dtype=parameter.dtype, device="cpu")
        small.grad = torch.full_like(small, fill)
        parameters.append(small)
    state: defaultdict[Any, dict[str, Any]] = defaultdict(_Recording)
    with swapped(optimizer, parameters, state):
        raw_step(optimizer)
    return [getattr(state[parameter], "first", {}) for parameter in parameters]


def _number(optimizer: Optimizer, key: str, one: Any, other: Any) -> float:
    if (
        isinstance(optimizer, SGD)
        and key == "momentum_buffer"
        and not any(g["dampening"] for g in optimizer.param_groups)
    ):
        return _NEGATIVE_ZERO  # the first update takes the gradient as it is; -0 plus any number is that number
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor) or not torch.equal(one, other):
        raise UsageError(
            f"how {type(optimizer).__name__} starts its state '{key}' is not known; run one ordinary step first"
        )
    return float(one.item())
