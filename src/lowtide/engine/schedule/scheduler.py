"""The interface of schedulers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph


class Scheduler(Protocol):
    """An algorithm that orders the ops of a graph.

    Implementations are frozen dataclasses of their settings and deterministic.
    """

    def order(self, problem: Problem) -> Order:
        """Return all ops of `problem.graph` in a topological order, int32, shape (ops,)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Keep program order.

    Source: Mesh-TensorFlow, method NAIVE, and XLA's trivial scheduler. Complexity: O(n).
    """

    def order(self, problem: Problem) -> Order:
        return problem.given_order()


def compare_key(graph: Graph, peaks: Iterable[int]) -> tuple[int, int]:
    """Return an order's sort key: the excess over all capacities, then the sum of the peaks, in bytes."""
    limited = any(space.capacity_bytes is not None for space in graph.spaces)
    persistent = graph.persistent_bytes() if limited else {}
    excess = total = 0
    for space, peak in zip(graph.spaces, peaks, strict=True):
        total += peak
        if space.capacity_bytes is not None:
            excess += max(0, persistent[space.name] + peak - space.capacity_bytes)
    return excess, total


def best_of(problem: Problem, schedulers: Sequence[Scheduler]) -> Order:
    """Return the order with the least memory; the earlier scheduler wins a tie."""
    orders = (scheduler.order(problem) for scheduler in schedulers)
    return min(orders, key=lambda order: compare_key(problem.graph, problem.evaluate(order).peaks.tolist()))
