"""Griewank and Walther's Revolve: the least forward steps that reverse a chain with a few places for kept results."""

from functools import cache


@cache
def least_reruns(depth: int, kept: int) -> int:
    """Return how many forward steps of a chain run again at least, with room to keep some results beside its input.

    The last step's result needs no place of its own. After Griewank and Walther 2000, Algorithm 799, by its recursion:
    O(depth^2 * kept).
    """
    return _steps(depth, kept) - max(0, depth - 1)


@cache
def _steps(depth: int, kept: int) -> int:
    """Forward steps that reverse a chain from its input: go to the result to keep, reverse what lies behind it, then
    what lies before."""
    if depth <= 1:
        return 0
    if kept == 0:
        return depth * (depth - 1) // 2
    return min(step + _steps(depth - step, kept - 1) + _steps(step, kept) for step in range(1, depth))
