"""The least peak of a memory space over all orders, for small graphs."""

from collections.abc import Iterable
from functools import cache
from itertools import combinations

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Lifetime
from tests.oracles.slow_view import SlowView


def least_peak(problem: Problem, space: int = 0) -> int:
    """Return the least peak in bytes of one memory space, by dynamic programming over sets of ops that have run."""
    graph = problem.graph
    view = SlowView.of(problem)
    spaces = graph.buffer_spaces.tolist()
    sizes = [size if spaces[buffer] == space else 0 for buffer, size in enumerate(view.sizes)]
    scratch = problem.transient[:, space].tolist()
    kept = (Lifetime.INPUT, Lifetime.OUTPUT)
    at_start = sum(
        size
        for size, lifetime in zip(sizes, view.lifetimes, strict=True)
        if lifetime in (Lifetime.INPUT, Lifetime.DONATED)
    )

    @cache
    def live(has_run: frozenset[int]) -> int:
        total = 0
        for buffer, size in enumerate(sizes):
            exists = view.producers[buffer] in has_run or view.lifetimes[buffer] in (Lifetime.INPUT, Lifetime.DONATED)
            needed = view.lifetimes[buffer] in kept or any(user not in has_run for user in view.users[buffer])
            total += size if exists and needed else 0
        return total

    def saved(has_run: frozenset[int], op: int) -> int:
        if not problem.in_place:
            return 0
        flat = graph.in_place[op].tolist()
        usable = [
            (read, written)
            for read, written in dict.fromkeys(zip(flat[::2], flat[1::2], strict=True))
            if view.freeable(read)
            and written in view.allocates[op]
            and view.sizes[read] == view.sizes[written]
            and spaces[read] == spaces[written] == space
            and all(user in has_run or user == op for user in view.users[read])
        ]
        return max(_disjoint_savings(usable, sizes))

    @cache
    def best_from(has_run: frozenset[int]) -> int:
        peaks = [
            max(
                live(has_run) + sum(sizes[buffer] for buffer in view.allocates[op]) + scratch[op] - saved(has_run, op),
                best_from(has_run | {op}),
            )
            for op in view.ready(set(has_run))
        ]
        return min(peaks, default=0)

    return max(at_start, best_from(frozenset()))


def _disjoint_savings(pairs: list[tuple[int, int]], sizes: list[int]) -> Iterable[int]:
    for count in range(len(pairs) + 1):
        for chosen in combinations(pairs, count):
            if len({read for read, _ in chosen}) == count == len({written for _, written in chosen}):
                yield sum(sizes[written] for _, written in chosen)
