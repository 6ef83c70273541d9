"""The best order where the graph is a tree, by an algorithm that is exact there."""

from lowtide import _native
from lowtide.engine.analysis.problem import Order, Problem


def tree_order(problem: Problem) -> Order | None:
    """Return an order of least peak, or None unless the graph is a forest of in-trees in one memory space.

    That is: every op has at most one successor, and every buffer that is freed has at most one user. Scratch, in-place
    pairs, control edges, donated inputs and outputs are included.

    Source: Liu, "An application of generalized tree pebbling to sparse matrix factorization" (1987); the general form
    of Abdel-Wahab and Kameda, "Scheduling to minimize maximum cumulative cost subject to series-parallel precedence
    constraints" (1978). Complexity: O(n log n). Guarantees: optimal, so the peak is a lower bound for every order.
    """
    order = _native.tree_order(problem.native, problem.in_place)
    return order if len(order) == problem.graph.n_ops else None
