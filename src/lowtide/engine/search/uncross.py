"""x."""

from collections.abc import Sequence

import numpy as np

from lowtide import _native
from lowtide.core.index_spaces import Place, SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.search.cuts import ClosureCut, ClosureCuts

_MOST_OPS = 1_000_000
_LEAST_ORDERS = 2
_MOST_TRIED = 40
_WORK_PER_OP = 32
"""Of trying a move, in arcs of a flow graph."""


def close_order(problem: Problem, order: Order) -> Order:
    """Move ops to where they cost nothing; the peak is never higher, in any memory space.

    Forward first: a ready op that fits below the order's own peak and does not raise live bytes runs at once. Then
    backward: an op that fits, and whose removal from the executed ones does not raise live bytes, runs as late as it
    can. So an update runs right after its gradient is there, a recomputation right before it is needed. Safe because
    live bytes are submodular over executed sets; with in-place pairs, an op is put off only if that takes no pair from
    another. Complexity: O((n + e) log n).
    """
    return _native.close_order(problem.native, order, problem.in_place)


def close_orders(problem: Problem, orders: Sequence[Order]) -> list[Order]:
    """Return the first of the orders closed: all of them for graphs of 100,000 ops, two at least for any."""
    count = max(_LEAST_ORDERS, _MOST_OPS // max(1, problem.graph.n_ops))
    return [close_order(problem, order) for order in orders[:count]]


def uncross(problem: Problem, order: Order, cuts: ClosureCuts, space: SpaceId, most_work: int) -> Order:
    """Improve an order in one memory space as long as cutting at one of its worst ops helps.

    S is the least closed set at which a bad op v can run. A move runs what is in S in the present order, then v, then
    the rest in the present order. It is taken if the profile, sorted from its top, gets smaller and no other space gets
    a higher peak. Stops after `most_work` arcs. Source: uncrossing of minimum cuts (submodularity of live
    bytes); never returns a worse order.
    """
    current = Profile(problem, order, space)
    while cuts.work < most_work:
        better = _first_better(problem, current, cuts, space, most_work)
        if better is None:
            break
        current = better
    return current.order


class Profile:
    """An order with its live bytes, place by place."""

    def __init__(self, problem: Problem, order: Order, space: SpaceId) -> None:
        n_spaces = len(problem.graph.spaces)
        profile = _native.profile(problem.native, order, problem.in_place).reshape(len(order), n_spaces)
        self.problem = problem
        self.space = space
        self.order = order
        self.here = profile[:, space]
        self.peaks = profile.max(axis=0, initial=0)
        self.falling = np.sort(self.here)[::-1]

    def with_cut(self, place: Place, cut: ClosureCut) -> "Profile":
        """Return the order in which what a cut holds runs first, then the op at `place`, then the rest."""
        before = cut.before[self.order]
        after = ~before
        after[place] = False
        order = np.concatenate([self.order[before], self.order[place : place + 1], self.order[after]])
        return Profile(self.problem, order, self.space)

    def is_better_than(self, other: "Profile") -> bool:
        """Whether the sorted profile is smaller where it first differs, and no space got worse."""
        if (self.peaks > other.peaks).any():
            return False
        different = np.flatnonzero(self.falling != other.falling)
        return bool(len(different)) and bool(self.falling[different[0]] < other.falling[different[0]])


def _first_better(
    problem: Problem, current: Profile, cuts: ClosureCuts, space: SpaceId, most_work: int
) -> Profile | None:
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
