"""Moves that cost nothing: what can run early for free runs early, what can run late for free runs late."""

from collections.abc import Sequence

from lowtide import _native
from lowtide.engine.analysis.problem import Order, Problem

_MOST_OPS = 1_000_000
_LEAST_ORDERS = 2


def close_order(problem: Problem, order: Order) -> Order:
    """Move ops to where they cost nothing; the peak is never higher, in any memory space.

    Forward first: a ready op that fits below the order's own peak and does not raise live bytes runs at once. Then
    backward: an op that fits, and whose removal from the executed ones does not raise live bytes, runs as late as it
    can. So an update runs right after its gradient is there, a recomputation right before it is needed. Safe because
    live bytes are submodular over executed sets; with in-place pairs, an op is put off only if that takes no pair from
    another. Complexity: O((n + e) log n).
    """
    return _native.close_order(problem.native, order, problem.in_place)


def close_orders(problem: Problem, orders: Sequence[Order]) -> list[Order]:
    """Return the first of the orders closed: all of them for graphs of 100,000 ops, two at least for any."""
    count = max(_LEAST_ORDERS, _MOST_OPS // max(1, problem.graph.n_ops))
    return [close_order(problem, order) for order in orders[:count]]
