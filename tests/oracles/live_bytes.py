"""The oracle of bounds: live bytes while one op of an order runs, from sets of buffers."""

from collections.abc import Sequence

from lowtide.engine.graph import Graph, Lifetime
from tests.oracles.naive_player import allocations, transient, uses


def live_bytes_at(graph: Graph, order: Sequence[int], place: int, space: int) -> int:
    """Return the bytes in a space while the op at a place of the order runs, without optional in-place pairs."""
    fresh = allocations(graph)
    written = set[int]().union(*(fresh[op] for op in order[: place + 1]))
    needed = set[int]().union(*(uses(graph, op) for op in order[place:]))
    total = transient(graph, order[place])[space]
    for buffer in (graph.buffer(number) for number in range(graph.n_buffers)):
        match buffer.lifetime:
            case Lifetime.PERSISTENT:
                held = False
            case Lifetime.INPUT:
                held = True
            case Lifetime.DONATED:
                held = buffer.id in needed
            case Lifetime.INTERMEDIATE:
                held = buffer.id in written and (buffer.id in needed)
            case Lifetime.OUTPUT:
                held = buffer.id in written
        if held and buffer.space == space:
            total += buffer.size_bytes
    return total
