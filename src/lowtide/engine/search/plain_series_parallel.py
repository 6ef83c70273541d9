"""The least peak of a series-parallel graph, in plain Python."""

from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.plain_tree import Segment, by_urgency, joined

_Edges = dict[int, dict[int, list[Segment]]]


def plain_series_parallel_peak(program: PlainProgram) -> int | None:
    """Return the least peak of all orders, or None where the program is not series-parallel in this memory space.

    It is where, between a source before all ops and a sink after them, the dependences shrink to one edge, and every
    buffer that is freed has one user after all its others, so that what an op adds and leaves does not depend on the
    order. An edge carries the best order of what it stands for, as segments that nothing should interrupt, most urgent
    first: two edges between the same ops merge, an op with an edge in and an edge out stands between them.
    Source: Abdel-Wahab and Kameda, "Scheduling to minimize maximum cumulative cost subject to series-parallel
    precedence constraints" (1978). Complexity: O(n^2) at worst, and n bits an op.
    """
    ancestors: list[int] = []
    for earlier in program.predecessors:
        mask = 0
        for other in earlier:
            mask |= ancestors[other] | 1 << other
        ancestors.append(mask)
    for size, lifetime, users in zip(program.sizes, program.lifetimes, program.users, strict=True):
        if size and lifetime.freeable and any(not ancestors[users[-1]] >> user & 1 for user in users[:-1]):
            return None
    if sum(map(len, program.predecessors)) > 2 * program.n_ops:  # more edges than a series-parallel graph has
        return None
    whole = _reduced(program, ancestors)
    if whole is None:
        return None
    live = highest = program.live_at_start(unused=False)
    for hill, net in whole:
        highest = max(highest, live + hill)
        live += net
    return max(highest, program.at_the_edges())


def _reduced(program: PlainProgram, ancestors: list[int]) -> list[Segment] | None:
    """Return the segments of the one edge that is left, or None where more are left."""
    source, sink = -1, program.n_ops
    after: _Edges = {op: {} for op in range(source, sink + 1)}
    before: dict[int, set[int]] = {op: set() for op in range(source, sink + 1)}
    for op, earlier in enumerate(program.predecessors):
        before[op] = set(earlier) or {source}
        for other in before[op]:
            after[other][op] = []
    for op in range(program.n_ops):
        if not after[op]:
            after[op][sink] = []
            before[sink].add(op)
    waiting = list(reversed(range(program.n_ops)))
    while waiting:
        op = waiting.pop()
        if not len(before[op]) == len(after[op]) == 1:
            continue
        first = before[op].pop()
        last, behind = after[op].popitem()
        before[last].remove(op)
        segments = joined([*after[first].pop(op), program.run(op, ancestors[op]), *behind])
        if last in after[first]:
            segments = list(by_urgency([after[first][last], segments]))
        after[first][last] = segments
        before[last].add(first)
        waiting += [end for end in (first, last) if source < end < sink]
    return after[source][sink] if list(after[source]) == [sink] else None
