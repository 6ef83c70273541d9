"""One step over several calls: gradients add up, and the last call updates."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from lowtide.frameworks.torch.internals.tensors import storage_bytes, storage_key


class Part(NamedTuple):
    """Which part of a step a call is."""

    first: bool
    """It starts from no gradients."""
    last: bool
    """It updates the parameters."""
    calls: int
    """How many calls make a step."""

    @classmethod
    def of(cls, done: int, calls: int) -> "Part":
        """Return the part that comes after some calls of a step."""
        return cls(done == 0, done == calls - 1, calls)

    def share_of(self, loss: torch.Tensor) -> torch.Tensor:
        """Return what a call adds to the loss of the step, the mean over its calls."""
        return loss if self.calls == 1 else loss / self.calls


def kept_gradients(gradients: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return gradients as autograd would leave them: each in a storage of its own, with its parameter's strides."""
    seen = {storage_key(parameter) for parameter in parameters}
    kept: list[torch.Tensor] = []
    for gradient, parameter in zip(gradients, parameters, strict=True):
        own = gradient
        fills = storage_bytes(gradient) == gradient.numel() * gradient.element_size()
        if gradient.stride() != parameter.stride() or not fills or storage_key(gradient) in seen:
            own = torch.empty_like(parameter).copy_(gradient)
        seen.add(storage_key(own))
        kept.append(own.detach())
    return kept
