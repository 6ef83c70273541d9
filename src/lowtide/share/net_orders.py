"""The two orders that memonger shares storage in."""

from collections.abc import Callable, Mapping, Sequence

from lowtide import _native
from lowtide.analysis import Problem
from lowtide.errors import UsageError
from lowtide.graph import GraphBuilder
from lowtide.share.dependences import is_valid_order, predecessors
from lowtide.share.named_net import NamedNet


def topological_order(net: NamedNet) -> list[int]:
    """Return the ops in the order in which they become ready, those ready at once in the order of the net. O(n + e)."""
    before = predecessors(net)
    after: list[list[int]] = [[] for _ in net.ops]
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


def longest_path_order(net: NamedNet) -> list[int]:
    """Return the order that starts the sources with the longest paths first, as the scheduler of that name does."""
    builder = GraphBuilder("net")
    for position, before in enumerate(predecessors(net)):
        builder.add_op(str(position), "op", after=before)
    return _native.longest_path(Problem(builder.build()).native).tolist()


ORDERS: Mapping[str, Callable[[NamedNet], list[int]]] = {
    "topological": topological_order,
    "longest-path": longest_path_order,
}
"""The orders by name."""


def chosen_order(net: NamedNet, order: str | Sequence[int]) -> list[int]:
    """Return the order of a name, or the given order once it is found valid; raises UsageError."""
    if isinstance(order, str):
        if order not in ORDERS:
            raise UsageError(f"unknown order {order!r}; choose one of {', '.join(ORDERS)}, or give op positions")
        return ORDERS[order](net)
    if not is_valid_order(net, list(order)):
        raise UsageError("the order does not run every op once, after all it waits for; give a valid order")
    return list(order)
