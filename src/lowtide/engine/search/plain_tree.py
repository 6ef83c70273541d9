"""The least peak of a tree, in plain Python."""

from collections.abc import Iterable
from heapq import merge

from lowtide.engine.search.plain_program import PlainProgram

Segment = tuple[int, int]
"""What a run of ops adds to live bytes at its highest, and what it leaves behind; both relative to its start."""


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
