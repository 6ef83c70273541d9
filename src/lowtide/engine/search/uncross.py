"""Moves that never raise the peak: closing and uncrossing an order."""

from collections.abc import Sequence

import numpy as np

from lowtide import _native
from lowtide.core.index_spaces import Place, SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.search.cuts import ClosureCut, ClosureCuts, run_after_cut

_MOST_OPS = 1_000_000
_LEAST_ORDERS = 2
_MOST_TRIED = 40
_WORK_PER_OP = 32
"""Work of evaluating a move, in arcs per op."""


def close_order(problem: Problem, order: Order) -> Order:
    """Return an order with ops moved earlier or later at no cost; the peak rises in no memory space.

    Forward: a ready op runs at once if it fits below the order's peak and does not raise live bytes. Backward: an op
    that fits runs as late as possible if its delay does not raise live bytes, and no other op loses an in-place pair.
    Correct because live bytes are submodular over executed sets. Complexity: O((n + e) log n).
    """
    return _native.close_order(problem.native, order, problem.in_place)


def close_orders(problem: Problem, orders: Sequence[Order]) -> list[Order]:
    """Return the leading orders closed: at least two, all for up to 100,000 ops."""
    count = max(_LEAST_ORDERS, _MOST_OPS // max(1, problem.graph.n_ops))
    return [close_order(problem, order) for order in orders[:count]]


def uncross(problem: Problem, order: Order, cuts: ClosureCuts, space: SpaceId, most_work: int) -> Order:
    """Improve an order in one memory space by cutting at its worst ops, within `most_work` arcs.

    A move runs the least closed set at which a bad op v can run, in the current order, then v, then the rest. It is
    kept if the profile, sorted from its top, gets smaller and no other space gets a higher peak.
    Source: uncrossing of minimum cuts (submodularity of live bytes). Guarantees: never a worse order.
    """
    current = Profile(problem, order, space)
    while cuts.work < most_work:
        better = _first_better(problem, current, cuts, space, most_work)
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
        self.falling = np.sort(self.here)[::-1]

    def with_cut(self, place: Place, cut: ClosureCut) -> "Profile":
        """Return the order that runs the ops before the cut, then the op at `place`, then the rest."""
        return Profile(self.problem, run_after_cut(self.order, place, cut), self.space)

    def is_better_than(self, other: "Profile") -> bool:
        """Return whether the sorted profile is smaller and no space got worse."""
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
