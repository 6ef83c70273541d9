"""How far the results of two ways to compute the same are from each other, as rounding goes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class LargestDifference:
    """The largest difference of two results."""

    share: float
    """Of two numbers, as a share of the largest of their tensor; 1 where something differs that is no real number."""
    is_rounding: bool
    """Whether that is no more than half of the digits that the type has, in every tensor."""

    def is_usual(self, usual: "LargestDifference") -> bool:
        """Tell whether that is what rounding makes of it, where other last digits of all inputs make a difference."""
        return self.is_rounding or self.share <= usual.share * _LAST_DIGITS_OF_SUMS


NO_DIFFERENCE = LargestDifference(0.0, is_rounding=True)
_ANOTHER_VALUE = LargestDifference(1.0, is_rounding=False)


_LAST_DIGITS_OF_SUMS = 64
"""So many times what other last digits of all inputs change may differ where sums are made in another order: sums of
thousands of numbers differ by tens of last digits."""


def in_other_last_digits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose real numbers are others in their last digits, up or down by chance, the same each time."""
    if not tensor.is_floating_point():
        return tensor
    up = torch.randint(0, 2, tensor.shape, generator=torch.Generator().manual_seed(0)).to(tensor)
    return tensor.detach() * (1 + (2 * up - 1) * torch.finfo(tensor.dtype).eps)


def difference_of(one: Any, other: Any) -> LargestDifference:
    """Return the difference of two results, tensors or not."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return NO_DIFFERENCE if repr(one) == repr(other) else _ANOTHER_VALUE
    if one.shape != other.shape or one.dtype != other.dtype:
        return _ANOTHER_VALUE
    if torch.equal(one, other):
        return NO_DIFFERENCE
    if not one.is_floating_point():
        return _ANOTHER_VALUE
    share = float((one - other).abs_().max() / one.abs().max())
    if not math.isfinite(share):
        return _ANOTHER_VALUE
    return LargestDifference(share, share <= math.sqrt(torch.finfo(one.dtype).eps))


def largest_difference(ours: Iterable[Any], theirs: Iterable[Any]) -> LargestDifference:
    """Return the largest difference of the results of two runs, as many of each."""
    found = [difference_of(*pair) for pair in zip(ours, theirs, strict=True)]
    return LargestDifference(
        max((each.share for each in found), default=0.0), is_rounding=all(each.is_rounding for each in found)
    )
