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


NO_DIFFERENCE = LargestDifference(0.0, is_rounding=True)
_ANOTHER_VALUE = LargestDifference(1.0, is_rounding=False)


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
