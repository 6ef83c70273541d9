"""Bound the peak by the first op of a group, for graphs that repeat a layer many times.

A single op can often wait until memory is low, so its own cut is weak. But one op of each group runs first.
"""

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import OpId, SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.search.cuts import HeldBackCuts
from lowtide.engine.search.uncross import Profile

_MOST_MEMBERS = 20
_MOST_BITS = 2**30
"""Size limit of the table of descendants."""


def uncross_first(problem: Problem, order: Order, space: SpaceId, most_work: int) -> Order:
    """Improve an order by moving its worst op before later ops that allocate as much.

    These ops are held back, and the cut of the worst op gives a move, as in `uncross`. Stops after about `most_work`
    arcs.
    Guarantees: never a worse order.
    """
    current = Profile(problem, order, space)
    cuts = HeldBackCuts(problem, space)
    while cuts.work < most_work and len(order):
        place = int(current.here.argmax())
        op, rest = int(current.order[place]), current.order[place + 1 :]
        cut = cuts.of(op, rest[cuts.added[rest] >= cuts.added[op]])
        if current.here[place] <= cut.peak_bytes:
            break
        candidate = current.with_cut(place, cut)
        if not candidate.is_better_than(current):
            break
        current = candidate
    return current.order


def first_in_group_bound(problem: Problem, order: Order, space: SpaceId) -> tuple[int, int]:
    """Return a lower bound of the peak in a memory space, 0 if none is found, and the work done.

    The group is the worst op of the order and all non-ancestors that allocate at least as much. Members that may run
    first are cut one by one; the remaining ones share one cut after their common ancestors. The bound is the least of
    these cuts.
    """
    if not len(order):
        return 0, 0
    profile = Profile(problem, order, space)
    place = int(profile.here.argmax())
    cuts = HeldBackCuts(problem, space)
    worst, most = int(order[place]), int(profile.here[place])
    needed = _ancestors(problem, worst)
    members = order[(cuts.added[order] >= cuts.added[worst]) & ~needed[order]]
    members = members[: max(1, _MOST_BITS // len(order))]
    reaches = _members_reached(problem, members)
    held: list[int] = members.tolist()
    best, least = 0, most
    for number in range(min(_MOST_MEMBERS, len(members))):
        rest = ((1 << len(members)) - 1) >> number << number
        common = [op for op, reached in enumerate(reaches) if reached & rest == rest]
        if not set(held).isdisjoint(common):  # the rest depend on a member, so they cannot be first
            best = max(best, least)
            break
        least_adding = int(members[number:][cuts.added[members[number:]].argmin()])
        group = cuts.of(least_adding, members, only_after=np.array(common, np.int32))
        in_pairs = _allocated(problem, least_adding, space) - int(cuts.added[least_adding])
        best = max(best, min(least, group.peak_bytes - in_pairs))
        if group.peak_bytes - in_pairs >= least:
            break
        member = int(members[number])
        if not any(reaches[other] >> number & 1 for other in held):
            least = min(least, cuts.of(member, members).peak_bytes)
        if least <= best:
            break
    return best, cuts.work


def _allocated(problem: Problem, op: OpId, space: SpaceId) -> int:
    buffers = problem.graph.structure.allocates[op]
    here = buffers[problem.graph.buffer_spaces[buffers] == space]
    return int(problem.graph.sizes[here].sum() + problem.transient[op, space])


def _ancestors(problem: Problem, op: OpId) -> NDArray[np.bool_]:
    seen = np.zeros(problem.graph.n_ops, np.bool_)
    waiting = [op]
    while waiting:
        for earlier in problem.graph.structure.predecessors[waiting.pop()].tolist():
            if not seen[earlier]:
                seen[earlier] = True
                waiting.append(earlier)
    return seen


def _members_reached(problem: Problem, members: NDArray[np.int32]) -> list[int]:
    number = {op: bit for bit, op in enumerate(members.tolist())}
    successors = list(problem.graph.structure.successors)
    reached = [0] * problem.graph.n_ops
    for op in reversed(range(problem.graph.n_ops)):
        bits = 0
        for later in successors[op]:
            bits |= reached[later] | (1 << number[later] if later in number else 0)
        reached[op] = bits
    return reached
