"""The two orders that memonger shares storage in."""

from collections.abc import Callable, Mapping, Sequence

from lowtide import _native
from lowtide.core.errors import UsageError, unknown
from lowtide.core.index_spaces import OpId
from lowtide.engine.analysis import Problem
from lowtide.engine.graph import GraphBuilder
from lowtide.frameworks.caffe2.sharing.dependences import is_valid_order, predecessors
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet

_MOST_WORK = 200_000_000
"""Edges looked at for the ties of `longest_path_order`; some 300,000,000 a second."""


def topological_order(net: NamedNet) -> list[OpId]:
    """Return the ops in the order in which they become ready, those ready at once in the order of the net. O(n + e)."""
    return topological_order_of(predecessors(net))


def topological_order_of(before: Sequence[Sequence[OpId]]) -> list[OpId]:
    """Return `topological_order` where all that is known is what each op waits for."""
    after: list[list[OpId]] = [[] for _ in before]
    for op, others in enumerate(before):
        for other in others:
            after[other].append(op)
    missing = [len(others) for others in before]
    order = [op for op, count in enumerate(missing) if count == 0]
    for op in order:  # grows while it is walked
        for successor in after[op]:
            missing[successor] -= 1
            if missing[successor] == 0:
                order.append(successor)
    return order


def longest_path_order(net: NamedNet) -> list[OpId]:
    """Return memonger's order that starts the sources with the longest paths first, ties included.

    Where its paths make no tree, or its ties take too much work, the result is that of `merged_path_order`.
    """
    return longest_path_order_of(predecessors(net))


def longest_path_order_of(before: Sequence[Sequence[OpId]]) -> list[OpId]:
    """Return `longest_path_order` where all that is known is what each op waits for: ops that come before it."""
    return _native.longest_path(_problem(before).native, _MOST_WORK).tolist()


def merged_path_order(net: NamedNet) -> list[OpId]:
    """Return the order by longest paths that always merge, ties in the order of the net. O(n log n + e)."""
    return _native.longest_path_merged(_problem(predecessors(net)).native).tolist()


def _problem(before: Sequence[Sequence[OpId]]) -> Problem:
    builder = GraphBuilder("net")
    for position, others in enumerate(before):
        builder.add_op(str(position), "op", after=others)
    return Problem(builder.build())


ORDERS: Mapping[str, Callable[[NamedNet], list[OpId]]] = {
    "topological": topological_order,
    "longest-path": longest_path_order,
    "longest-path-merged": merged_path_order,
}
"""The orders by name."""


def chosen_order(net: NamedNet, order: str | Sequence[OpId]) -> list[OpId]:
    """Return the order of a name, or the given order once it is found valid; raises UsageError."""
    if isinstance(order, str):
        if order not in ORDERS:
            raise UsageError(f"{unknown('order', order, ORDERS)}, or give op positions")
        return ORDERS[order](net)
    if not is_valid_order(net, list(order)):
        raise UsageError("the order does not run every op once, after all it waits for; give a valid order")
    return list(order)
