"""Dependences between ops, and orders."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise

from lowtide import _native
from lowtide.core.errors import UsageError, unknown
from lowtide.core.index_spaces import OpId
from lowtide.engine.analysis import Problem
from lowtide.engine.graph import GraphBuilder
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet

_TIE_WORK_LIMIT = 200_000_000
"""Edges that `longest_path_order` may visit to break ties, about 300,000,000 a second."""


def interference_edges(net: NamedNet) -> list[tuple[OpId, OpId]]:
    """Return the edges (earlier op, later op) of a net, sorted and unique.

    An op waits for the writers of all its blobs, the readers of its outputs, and `after`. O(n + e), with up to k edges
    per touch of a blob with k writers. Source: Caffe2 memonger, compute_interference_graph, where only reads make
    edges.
    """
    return list(net.edges)


def predecessors(net: NamedNet) -> list[list[OpId]]:
    result: list[list[OpId]] = [[] for _ in net.ops]
    for before, after in net.edges:
        result[after].append(before)
    return result


def ancestors(net: NamedNet) -> list[int]:
    """Return the ops before each op in every execution, as bits. O(n e / 64) time, n * n / 8 bytes."""
    result: list[int] = []
    for before in predecessors(net):
        mask = 0
        for op in before:
            mask |= result[op] | 1 << op
        result.append(mask)
    return result


def never_overlap(net: NamedNet, slots: Iterable[Iterable[str]], before: Sequence[int]) -> bool:
    """Return whether blobs of a slot are never in use at once, given all `ancestors`. O(e n / 64)."""
    touches: dict[str, list[OpId]] = {}
    for op, (reads, writes) in enumerate(zip(net.reads, net.writes, strict=True)):
        for blob in dict.fromkeys((*reads, *writes)):
            touches.setdefault(blob, []).append(op)
    for slot in slots:
        for former, latter in pairwise(sorted(touches[blob] for blob in slot)):
            mask = sum(1 << op for op in former)
            if any(mask & ~before[op] for op in latter):
                return False
    return True


def topological_order(net: NamedNet) -> list[OpId]:
    """Return the ops in the order in which they become ready, ties in program order. O(n + e)."""
    return topological_order_of(predecessors(net))


def topological_order_of(before: Sequence[Sequence[OpId]]) -> list[OpId]:
    sorter: TopologicalSorter[OpId] = TopologicalSorter(dict.fromkeys(range(len(before)), ()))
    for op, others in enumerate(before):
        sorter.add(op, *others)
    return list(sorter.static_order())


def longest_path_order(net: NamedNet) -> list[OpId]:
    """Return memonger's order by longest path, ties included.

    If the paths form no tree, or ties need too much work, return `merged_path_order`.
    """
    return longest_path_order_of(predecessors(net))


def longest_path_order_of(before: Sequence[Sequence[OpId]]) -> list[OpId]:
    return _native.longest_path(_problem(before).native, _TIE_WORK_LIMIT).tolist()


def merged_path_order(net: NamedNet) -> list[OpId]:
    """Return the order by longest paths, with common parts merged. O(n log n + e)."""
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


def chosen_order(net: NamedNet, order: str | Sequence[OpId]) -> list[OpId]:
    if isinstance(order, str):
        if order not in ORDERS:
            raise UsageError(f"{unknown('order', order, ORDERS)}, or give op positions")
        return ORDERS[order](net)
    given = list(order)
    places = {op: place for place, op in enumerate(given)}
    if sorted(given) != list(range(len(net.ops))) or any(places[before] > places[after] for before, after in net.edges):
        raise UsageError("the order does not run every op once, after all it waits for; give a valid order")
    return given
