"""The least peak over all orders, for small graphs of one memory space."""

from functools import cache

from lowtide.analysis import Problem
from lowtide.graph import Lifetime
from tests.oracles.slow_view import SlowView


def least_peak(problem: Problem) -> int:
    """Return the least peak in bytes without in-place pairs, by dynamic programming over sets of ops that have run."""
    view = SlowView.of(problem)
    kept = (Lifetime.INPUT, Lifetime.OUTPUT)
    at_start = sum(
        size for size, lifetime in zip(view.sizes, view.lifetimes, strict=True) if lifetime in (1, Lifetime.DONATED)
    )

    def live(has_run: frozenset[int]) -> int:
        total = 0
        for buffer, size in enumerate(view.sizes):
            exists = view.producers[buffer] in has_run or view.lifetimes[buffer] in (Lifetime.INPUT, Lifetime.DONATED)
            needed = view.lifetimes[buffer] in kept or any(user not in has_run for user in view.users[buffer])
            total += size if exists and needed else 0
        return total

    @cache
    def best_from(has_run: frozenset[int]) -> int:
        peaks = [
            max(live(has_run) + view.defined(op) + view.scratch[op], best_from(has_run | {op}))
            for op in view.ready(set(has_run))
        ]
        return min(peaks, default=0)

    return max(at_start, best_from(frozenset()))
