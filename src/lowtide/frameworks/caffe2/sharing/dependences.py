"""Which ops of a net must wait for which."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from lowtide.core.index_spaces import OpId
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet


def interference_edges(net: NamedNet) -> list[tuple[OpId, OpId]]:
    """Return the edges (earlier op, later op) of a net, sorted, each once and none from an op to itself.

    A later op waits for every op that wrote what it reads or writes, for every op that read what it writes, and for
    its control predecessors. Source: Caffe2 memonger, compute_interference_graph. Mended: there only reads make edges,
    so that an order could run a second writer of a blob before the readers of its first contents.
    Complexity: O(n + e); a blob with k writers adds up to k edges per touch.
    """
    return list(net.edges)


def predecessors(net: NamedNet) -> list[list[OpId]]:
    """Return per op the ops with an edge to it, ascending."""
    result: list[list[OpId]] = [[] for _ in net.ops]
    for before, after in net.edges:
        result[after].append(before)
    return result


def ancestors(net: NamedNet) -> list[int]:
    """Return per op, as the bits of an int, all ops that run before it in every execution of the net.

    Complexity: O(n e / 64) time, n * n / 8 bytes.
    """
    result: list[int] = []
    for before in predecessors(net):
        mask = 0
        for op in before:
            mask |= result[op] | 1 << op
        result.append(mask)
    return result


def follow_one_another(net: NamedNet, slots: Iterable[Iterable[str]], before: Sequence[int]) -> bool:
    """Whether of two blobs in a slot one is done with before the other begins, in every execution of the net.

    `before` are the ancestors of every op. Complexity: O(e n / 64).
    """
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


def is_valid_order(net: NamedNet, order: list[OpId]) -> bool:
    """Whether an order holds every op once, each after all that it waits for."""
    if sorted(order) != list(range(len(net.ops))):
        return False
    places = {op: place for place, op in enumerate(order)}
    return all(places[before] < places[after] for before, after in net.edges)
