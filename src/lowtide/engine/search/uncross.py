"""Moves that never raise the peak, and a bound for groups of ops."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import OpId, Place, SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.search.cuts import ClosureCut, ClosureCuts, HeldBackCuts, run_after_cut

_MOST_OPS = 1_000_000
_LEAST_ORDERS = 2
_MOST_TRIED = 40
_WORK_PER_OP = 32
_MOST_MEMBERS = 20
_MOST_BITS = 2**30


def close_order(problem: Problem, order: Order) -> Order:
    """Return an order with ops moved earlier or later at no cost; the peak rises in no memory space.

    Correct because live bytes are submodular over executed sets. O((n + e) log n).
    """
    return _native.close_order(problem.native, order, problem.in_place)


def close_orders(problem: Problem, orders: Sequence[Order]) -> list[Order]:
    """Return the leading orders closed: at least two, all for up to 100,000 ops."""
    count = max(_LEAST_ORDERS, _MOST_OPS // max(1, problem.graph.n_ops))
    return [close_order(problem, order) for order in orders[:count]]


def uncross(problem: Problem, order: Order, cuts: ClosureCuts, space: SpaceId, most_work: int) -> Order:
    """Improve an order in one memory space by cutting at its worst ops, within `most_work` arcs.

    A move is kept if the profile, sorted from its top, gets smaller and no other space's peak rises. Source: uncrossing
    of minimum cuts (submodularity of live bytes). Never a worse order.
    """
    current = Profile(problem, order, space)
    while cuts.work < most_work:
        better = _first_better(current, cuts, space, most_work)
        if better is None:
            break
        current = better
    return current.order


class Profile:
    def __init__(self, problem: Problem, order: Order, space: SpaceId) -> None:
        n_spaces = len(problem.graph.spaces)
        profile = _native.profile(problem.native, order, problem.in_place).reshape(len(order), n_spaces)
        self.problem = problem
        self.space = space
        self.order = order
        self.here = profile[:, space]
        self.peaks = profile.max(axis=0, initial=0)

    @cached_property
    def falling(self) -> NDArray[np.int64]:
        return np.sort(self.here)[::-1]

    def with_cut(self, place: Place, cut: ClosureCut) -> "Profile":
        return Profile(self.problem, run_after_cut(self.order, place, cut), self.space)

    def is_better_than(self, other: "Profile") -> bool:
        if (self.peaks > other.peaks).any():
            return False
        if self.peaks[self.space] < other.peaks[self.space]:
            return True
        different = np.flatnonzero(self.falling != other.falling)
        return bool(len(different)) and bool(self.falling[different[0]] < other.falling[different[0]])


def _first_better(current: Profile, cuts: ClosureCuts, space: SpaceId, most_work: int) -> Profile | None:
    order, here = current.order, current.here
    worst = np.argsort(-here, kind="stable")[:_MOST_TRIED]
    for place in worst.tolist():
        if cuts.work >= most_work:
            return None
        op = int(order[place])
        cut = cuts.of(op, space)
        if here[place] <= cut.peak_bytes:
            continue
        candidate = current.with_cut(place, cut)
        cuts.work += _WORK_PER_OP * len(order)
        if candidate.is_better_than(current):
            return candidate
    return None


def uncross_first(problem: Problem, order: Order, space: SpaceId, most_work: int) -> Order:
    """Improve an order by moving its worst op before later ops that allocate as much.

    Stops after about `most_work` arcs. Never a worse order.
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

    The group is the worst op and all non-ancestors that allocate at least as much: one of them runs first.
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
