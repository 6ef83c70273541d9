"""Differences between two computations' results (`LargestDifference`)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

_NOISE_FACTOR = 64
"""Sums of thousands of numbers differ by tens of last digits."""


@dataclass(frozen=True, slots=True)
class LargestDifference:
    share: float
    """Relative to the tensor's largest number; 1 for values that are not real numbers."""
    is_rounding: bool

    def is_within_noise(self, noise: "LargestDifference") -> bool:
        """Return whether this is rounding, or at most 64 times `noise`."""
        return self.is_rounding or self.share <= noise.share * _NOISE_FACTOR


NO_DIFFERENCE = LargestDifference(0.0, is_rounding=True)
_OTHER_VALUE = LargestDifference(1.0, is_rounding=False)


def in_other_last_digits(tensor: torch.Tensor) -> torch.Tensor:
    """Multiply each real number by `1 + eps` or `1 - eps`, at random with a fixed seed."""
    if not tensor.is_floating_point():
        return tensor
    up = torch.randint(0, 2, tensor.shape, generator=torch.Generator().manual_seed(0)).to(tensor)
    return tensor.detach() * (1 + (2 * up - 1) * torch.finfo(tensor.dtype).eps)


def difference_of(one: Any, other: Any) -> LargestDifference:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return NO_DIFFERENCE if repr(one) == repr(other) else _OTHER_VALUE
    if one.shape != other.shape or one.dtype != other.dtype:
        return _OTHER_VALUE
    if torch.equal(one, other):
        return NO_DIFFERENCE
    if not one.is_floating_point() and not one.is_complex():
        return _OTHER_VALUE
    share = float((one - other).abs().max() / one.abs().max())
    if not math.isfinite(share):
        return _OTHER_VALUE
    return LargestDifference(share, share <= math.sqrt(torch.finfo(one.dtype).eps))


def largest_difference(ours: Iterable[Any], theirs: Iterable[Any]) -> LargestDifference:
    found = [difference_of(*pair) for pair in zip(ours, theirs, strict=True)]
    return LargestDifference(
        max((each.share for each in found), default=0.0), is_rounding=all(each.is_rounding for each in found)
    )
