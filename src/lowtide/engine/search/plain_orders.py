"""Optimal peaks and exhaustive search in plain Python."""

from collections.abc import Iterable
from heapq import merge

from lowtide.engine.search.plain_program import PlainProgram

Segment = tuple[int, int]
"""Peak and net bytes of consecutive ops."""
_Edges = dict[int, dict[int, list[Segment]]]


def plain_tree_peak(program: PlainProgram) -> int | None:
    """Return the optimal peak, or None unless the program is a forest of in-trees in this memory space.

    Source: Liu (1987), see `tree_order`.
    """
    successors = [0] * program.n_ops
    for op in range(program.n_ops):
        for earlier in program.predecessors[op]:
            successors[earlier] += 1
    shared = any(
        len(users) > 1 and size > 0 and lifetime.freeable
        for users, size, lifetime in zip(program.users, program.sizes, program.lifetimes, strict=True)
    )
    if max(successors, default=0) > 1 or shared:
        return None
    segments: list[list[Segment]] = []
    for op in range(program.n_ops):
        operands = [segments[earlier] for earlier in program.predecessors[op]]
        segments.append(joined([*by_urgency(operands), program.run(op, 0)]))
    live = highest = program.live_at_start(unused=False)
    for hill, net in by_urgency(each for each, after in zip(segments, successors, strict=True) if not after):
        highest = max(highest, live + hill)
        live += net
    return max(highest, program.at_the_edges())


def by_urgency(subtrees: Iterable[list[Segment]]) -> Iterable[Segment]:
    return merge(*subtrees, key=_urgency)


def _urgency(segment: Segment) -> tuple[bool, int]:
    hill, net = segment
    return (False, hill) if net <= 0 else (True, net - hill)


def joined(segments: Iterable[Segment]) -> list[Segment]:
    """Join segments with a next one that is at least as urgent."""
    done: list[Segment] = []
    for hill, net in segments:
        done.append((hill, net))
        while len(done) > 1 and _urgency(done[-2]) >= _urgency(done[-1]):
            last_hill, last_net = done.pop()
            first_hill, first_net = done.pop()
            done.append((max(first_hill, first_net + last_hill), first_net + last_net))
    return done


def plain_series_parallel_peak(program: PlainProgram) -> int | None:
    """Return the optimal peak, or None unless the program is series-parallel in this memory space.

    See `series_parallel_order`. Source: Abdel-Wahab and Kameda (1978). O(n^2) at worst, and n bits per op.
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
    if sum(map(len, program.predecessors)) > 2 * program.n_ops:  # more edges than in any series-parallel graph
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


def no_order_fits(program: PlainProgram, budget_bytes: int, max_examined: int) -> bool | None:
    """Return whether no order meets the budget, or None after about `max_examined` examined ops.

    An op that fits and does not raise live bytes runs at once: later ops find no more live bytes, and lose no in-place
    pair.
    """
    if program.at_the_edges() > budget_bytes:
        return True
    everything = (1 << program.n_ops) - 1
    seen: set[int] = set()
    examined = 0
    waiting = [(0, program.live_at_start(unused=False))]
    while waiting:
        executed, live, passes = _run_safe_ops(program, *waiting.pop(), budget_bytes)
        examined += passes * program.n_ops
        if executed == everything:
            return False
        if executed in seen:
            continue
        seen.add(executed)
        examined += program.n_ops
        if examined > max_examined:
            return None
        for op in range(program.n_ops):
            if program.may_run(op, executed):
                more, net = program.run(op, executed)
                if live + more <= budget_bytes:
                    waiting.append((executed | 1 << op, live + net))
    return True


def _run_safe_ops(program: PlainProgram, executed: int, live: int, budget_bytes: int) -> tuple[int, int, int]:
    passes = 0
    changed = True
    while changed:
        changed = False
        passes += 1
        for op in range(program.n_ops):
            if program.may_run(op, executed):
                more, net = program.run(op, executed)
                if net <= 0 and live + more <= budget_bytes:
                    executed, live, changed = executed | 1 << op, live + net, True
    return executed, live, passes
