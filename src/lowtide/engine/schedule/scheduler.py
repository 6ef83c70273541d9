"""x."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph


class Scheduler(Protocol):
    """Finds an order for the ops of a graph.

    Implementations are frozen dataclasses of their settings: the same problem always gives the same order.
    """

    def order(self, problem: Problem) -> Order:
        """Return all ops of `problem.graph`, each once, in a valid topological order: int32, shape (ops,)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Keep the program order.

    Source: Mesh-TensorFlow's method NAIVE and XLA's trivial scheduler. Complexity: O(n).
    """

    def order(self, problem: Problem) -> Order:
        """Return the program order."""
        return problem.given_order()


def compare_key(graph: Graph, peaks: Iterable[int]) -> tuple[int, int]:
    """Return what orders of one graph are compared by, less is better; both parts in bytes.

    `peaks` holds a peak per memory space, in their order. First comes what does not fit: the excess over the capacity
    of every space, persistent buffers included. Then the sum of the peaks of all spaces.
    """
    limited = any(space.capacity_bytes is not None for space in graph.spaces)
    persistent = graph.persistent_bytes() if limited else {}
    excess = total = 0
    for space, peak in zip(graph.spaces, peaks, strict=True):
        total += peak
        if space.capacity_bytes is not None:
            excess += max(0, persistent[space.name] + peak - space.capacity_bytes)
    return excess, total


def best_of(problem: Problem, schedulers: Sequence[Scheduler]) -> Order:
    """Return the order with the least memory by simulation; the earlier scheduler wins a tie."""
    orders = (scheduler.order(problem) for scheduler in schedulers)
    return min(orders, key=lambda order: compare_key(problem.graph, problem.evaluate(order).peaks.tolist()))
