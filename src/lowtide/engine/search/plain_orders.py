"""x."""

from collections.abc import Iterable
from enum import Enum
from heapq import merge

from lowtide.engine.search.plain_program import PlainProgram

Segment = tuple[int, int]
"""What a run of ops adds to live bytes at its highest, and what it leaves behind; both relative to its start."""


_Edges = dict[int, dict[int, list[Segment]]]


def plain_tree_peak(program: PlainProgram) -> int | None:
    """Return the least peak of all orders, or None where the program is no forest of in-trees in this memory space.

    In a tree every op waits for ops of its own, and a buffer that is freed has one user, so that what an op adds and
    leaves does not depend on the order. Source: Liu, "An application of generalized tree pebbling to sparse matrix
    factorization" (1987): cut the best order of each subtree into segments that nothing should interrupt, merge those
    of an op's operands by urgency, append the op, and join whatever is less urgent than what follows it.
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
    """Interleave the segments of several parts, each most urgent first, in the same way."""
    return merge(*subtrees, key=_urgency)


def _urgency(segment: Segment) -> tuple[bool, int]:
    """Less is sooner: first what frees bytes, lowest hill first; then what keeps some, deepest fall first."""
    hill, net = segment
    return (False, hill) if net <= 0 else (True, net - hill)


def joined(segments: Iterable[Segment]) -> list[Segment]:
    """Join every segment with the one after it where that is at least as urgent."""
    done: list[Segment] = []
    for hill, net in segments:
        done.append((hill, net))
        while len(done) > 1 and _urgency(done[-2]) >= _urgency(done[-1]):
            last_hill, last_net = done.pop()
            first_hill, first_net = done.pop()
            done.append((max(first_hill, first_net + last_hill), first_net + last_net))
    return done


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


class PlainFit(Enum):
    """What exhaustive search can say about a budget."""

    SOME_ORDER_FITS = "some order fits"
    NO_ORDER_FITS = "no order fits"
    TOO_MUCH_WORK = "too much work to tell"


def plain_fit(program: PlainProgram, budget_bytes: int, most_looks: int) -> PlainFit:
    """Say whether some order stays within a budget, trying each set of executed ops once.

    Gives up after about `most_looks` looks at an op.
    The one shortcut: an op that fits and leaves no more bytes live than before runs at once. The more has run, the less
    an op adds to what is live, so that whatever runs after it finds no more bytes live than without it; and it takes no
    in-place pair away, since those need others to have run.
    """
    if program.at_the_edges() > budget_bytes:
        return PlainFit.NO_ORDER_FITS
    everything = (1 << program.n_ops) - 1
    seen: set[int] = set()
    looks = 0
    waiting = [(0, program.live_at_start(unused=False))]
    while waiting:
        executed, live, passes = _run_what_is_safe(program, *waiting.pop(), budget_bytes)
        looks += passes * program.n_ops
        if executed == everything:
            return PlainFit.SOME_ORDER_FITS
        if executed in seen:
            continue
        seen.add(executed)
        looks += program.n_ops
        if looks > most_looks:
            return PlainFit.TOO_MUCH_WORK
        for op in range(program.n_ops):
            if program.may_run(op, executed):
                more, net = program.run(op, executed)
                if live + more <= budget_bytes:
                    waiting.append((executed | 1 << op, live + net))
    return PlainFit.NO_ORDER_FITS


def _run_what_is_safe(program: PlainProgram, executed: int, live: int, budget_bytes: int) -> tuple[int, int, int]:
    """Return the executed set, its live bytes, and how often all ops were looked at."""
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
