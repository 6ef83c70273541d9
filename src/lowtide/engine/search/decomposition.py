"""Series-parallel graphs, recognized by taking them apart."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from lowtide.core.index_spaces import OpId, Place
from lowtide.engine.graph.rows import Rows

EMPTY = -1
"""The part without ops, and the op of a parallel part."""


class GraphPart(NamedTuple):
    """What lies between two ops: `left`, then `op`, then `right`; without an op, `left` and `right` side by side."""

    op: OpId
    left: int
    right: int


def decompose(predecessors: Rows) -> list[GraphPart] | None:
    """Return the parts of a series-parallel graph, each after those in it, or None for another graph.

    A source is set before all ops and a sink after them. Then two edges between the same ops become one, a parallel
    part, and an op between one edge in and one edge out becomes an edge with them, a part in series, as long as there
    are any; the graph is series-parallel if one edge is left.

    Source: Valdes, Tarjan and Lawler, "The recognition of series parallel digraphs" (1982).
    Complexity: O(n + e) expected.
    """
    n_ops = len(predecessors)
    if len(predecessors.values) > 2 * n_ops:  # a series-parallel graph has less than two edges per vertex
        return None
    source, sink = n_ops, n_ops + 1
    parts: list[GraphPart] = []
    after: list[dict[OpId, int]] = [{} for _ in range(n_ops + 2)]
    before: list[dict[OpId, None]] = [{} for _ in range(n_ops + 2)]

    def made(part: GraphPart) -> int:
        parts.append(part)
        return len(parts) - 1

    def join(first: OpId, last: OpId, part: int) -> None:
        known = after[first].get(last, EMPTY)
        beside = known != EMPTY and part != EMPTY
        after[first][last] = made(GraphPart(EMPTY, known, part)) if beside else max(known, part)
        before[last][first] = None

    for op, row in enumerate(predecessors):
        for earlier in row or (source,):
            join(earlier, op, EMPTY)
    for op in range(n_ops):
        if not after[op]:
            join(op, sink, EMPTY)
    waiting = deque(range(n_ops))
    while waiting:
        op = waiting.popleft()
        if len(before[op]) != 1 or len(after[op]) != 1:
            continue
        (first,), ((last, right),) = before[op], after[op].items()
        left = after[first].pop(op)
        del before[last][op]
        before[op].clear()
        join(first, last, made(GraphPart(op, left, right)))
        waiting.extend(end for end in (first, last) if end < n_ops)
    return parts if list(after[source]) == [sink] else None


def two_orders(parts: Sequence[GraphPart], n_ops: int) -> tuple[list[Place], list[Place]]:
    """Return per op its place in two orders; an op comes before another in every order if it does in these two. O(n).

    Both take the parts in turn, those side by side from left to right in the first and from right to left in the other.
    """
    return _places(parts, n_ops, mirrored=False), _places(parts, n_ops, mirrored=True)


def _places(parts: Sequence[GraphPart], n_ops: int, *, mirrored: bool) -> list[Place]:
    places = [0] * n_ops
    reached = 0
    waiting: list[tuple[OpId, int]] = [(EMPTY, len(parts) - 1)]
    while waiting:
        op, part = waiting.pop()
        if op != EMPTY:
            places[op] = reached
            reached += 1
        elif part != EMPTY:
            op, left, right = parts[part]
            if op == EMPTY and mirrored:
                left, right = right, left
            waiting += [(EMPTY, right), (op, EMPTY), (EMPTY, left)]
    return places
