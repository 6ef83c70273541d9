"""Optimal orders of trees and series-parallel graphs."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import OpId, Place
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Lifetime
from lowtide.engine.graph.rows import Rows

_MOST_OPS = 200_000
"""Larger graphs are skipped; this one takes five seconds."""
EMPTY = -1
"""The part without ops, and the op of a parallel part."""


class GraphPart(NamedTuple):
    """A part in series (`left`, `op`, `right`), or without an op `left` and `right` in parallel."""

    op: OpId
    left: int
    right: int


def tree_order(problem: Problem) -> Order | None:
    """Return an optimal order, or None unless the graph is a forest of in-trees in one memory space.

    Every op must have at most one successor, and every freed buffer at most one user. O(n log n). Source: Liu, "An
    application of generalized tree pebbling to sparse matrix factorization" (1987).
    """
    order = _native.tree_order(problem.native, problem.in_place)
    return order if len(order) == problem.graph.n_ops else None


def series_parallel_order(problem: Problem) -> Order | None:
    """Return an optimal order, or None unless the graph is series-parallel in one memory space.

    Dependencies must reduce to one edge (see `decompose`), and every freed buffer must have one user after all its
    others. Supports scratch, in-place pairs, control edges, donated inputs and outputs.

    Source: Abdel-Wahab and Kameda, "Scheduling to minimize maximum cumulative cost subject to series-parallel
    precedence constraints" (1978); Kayaaslan, Lambert, Marchal and Uçar, "Scheduling series-parallel task graphs to
    minimize peak memory" (2018). O(n log n) for shallow nesting, O(n^2) at worst.
    """
    graph = problem.graph
    if len(graph.spaces) != 1 or not 0 < graph.n_ops <= _MOST_OPS:
        return None
    parts = decompose(graph.structure.predecessors)
    if parts is None or not _frees_are_fixed(problem, parts):
        return None
    return np.array(_Segments(*_steps(problem)).order(parts), np.int32)


def _last_users(problem: Problem) -> NDArray[np.int32]:
    users = problem.graph.structure.users
    last = np.full(len(users), -1, np.int32)
    used = np.diff(users.offsets) > 0
    last[used] = users.values[users.offsets[1:][used] - 1]
    return last


def _frees_are_fixed(problem: Problem, parts: Sequence[GraphPart]) -> bool:
    graph = problem.graph
    users = graph.structure.users
    buffers = users.owners()
    looked_at = graph.freeable[buffers] & (graph.sizes[buffers] > 0)
    some, last = users.values[looked_at], _last_users(problem)[buffers[looked_at]]
    places = (np.array(_places(parts, graph.n_ops, mirrored=mirrored)) for mirrored in (False, True))
    return all(bool((place[some] <= place[last]).all()) for place in places)


def _steps(problem: Problem) -> tuple[list[int], list[int]]:
    graph, structure = problem.graph, problem.graph.structure
    last = _last_users(problem)
    net = np.zeros(graph.n_ops, np.int64)
    allocated = structure.allocates.values
    stays = ~graph.freeable[allocated] | (last[allocated] >= 0)
    np.add.at(net, structure.allocates.owners()[stays], graph.sizes[allocated[stays]])
    dies = graph.freeable & (last >= 0)
    np.subtract.at(net, last[dies], graph.sizes[dies])
    profile = _native.profile(problem.native, problem.given_order(), problem.in_place)
    at_start = (graph.lifetimes == Lifetime.INPUT) | ((graph.lifetimes == Lifetime.DONATED) & (last >= 0))
    before = graph.sizes[at_start].sum() + np.cumsum(net) - net
    return (profile - before).tolist(), net.tolist()


class _Segment(NamedTuple):
    keeps: bool
    urgency: int
    """Peak if no bytes remain, else the negative fall from peak to end."""
    first: OpId
    last: OpId
    hill: int
    net: int


class _Segments:
    def __init__(self, hills: Sequence[int], nets: Sequence[int]) -> None:
        self.hills = hills
        self.nets = nets
        self.next_op = [EMPTY] * len(hills)

    def order(self, parts: Sequence[GraphPart]) -> list[OpId]:
        done: list[deque[_Segment]] = []

        def segments_of(part: int) -> deque[_Segment]:
            if part == EMPTY:
                return deque()
            return done[part] if parts[part].op != EMPTY else deque(sorted(done[part]))

        for op, left, right in parts:
            if op == EMPTY:
                less, more = sorted((done[left], done[right]), key=len)
                more.extend(less)
                done.append(more)
            else:
                own = _segment(op, op, self.hills[op], self.nets[op])
                done.append(self.in_series(self.in_series(segments_of(left), deque((own,))), segments_of(right)))
        order: list[OpId] = []
        for segment in segments_of(len(parts) - 1):
            op = segment.first
            while op != EMPTY:
                order.append(op)
                op = self.next_op[op]
        return order

    def in_series(self, left: deque[_Segment], right: deque[_Segment]) -> deque[_Segment]:
        joined: deque[_Segment] = deque()
        while right and (joined or left) and _no_more_urgent((joined or left)[-1], right[0]):
            joined = deque((self.join((joined or left).pop(), right.popleft()),))
            while left and _no_more_urgent(left[-1], joined[0]):
                joined = deque((self.join(left.pop(), joined[0]),))
        left.extend(joined)
        if len(left) < len(right):
            right.extendleft(reversed(left))
            return right
        left.extend(right)
        return left

    def join(self, first: _Segment, second: _Segment) -> _Segment:
        self.next_op[first.last] = second.first
        hill = max(first.hill, first.net + second.hill)
        return _segment(first.first, second.last, hill, first.net + second.net)


def _segment(first: OpId, last: OpId, hill: int, net: int) -> _Segment:
    return _Segment(net > 0, net - hill if net > 0 else hill, first, last, hill, net)


def _no_more_urgent(segment: _Segment, following: _Segment) -> bool:
    return segment[:2] >= following[:2]


def decompose(predecessors: Rows) -> list[GraphPart] | None:
    """Return the parts of a series-parallel graph, each after its own parts, or None for another graph.

    Source: Valdes, Tarjan and Lawler, "The recognition of series parallel digraphs" (1982). O(n + e) expected.
    """
    n_ops = len(predecessors)
    if len(predecessors.values) > 2 * n_ops:  # a series-parallel graph has fewer edges
        return None
    source, sink = n_ops, n_ops + 1
    parts: list[GraphPart] = []
    after: list[dict[OpId, int]] = [{} for _ in range(n_ops + 2)]
    before: list[dict[OpId, None]] = [{} for _ in range(n_ops + 2)]

    def add_part(part: GraphPart) -> int:
        parts.append(part)
        return len(parts) - 1

    def join(first: OpId, last: OpId, part: int) -> None:
        known = after[first].get(last, EMPTY)
        parallel = known != EMPTY and part != EMPTY
        after[first][last] = add_part(GraphPart(EMPTY, known, part)) if parallel else max(known, part)
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
        join(first, last, add_part(GraphPart(op, left, right)))
        waiting.extend(end for end in (first, last) if end < n_ops)
    return parts if list(after[source]) == [sink] else None


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
