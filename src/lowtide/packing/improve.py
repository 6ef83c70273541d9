"""A lower packing of one part: exact search and the penalty loop by turns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lowtide import _native
from lowtide.effort import PackingEffort
from lowtide.packing.buffers import FREE
from lowtide.packing.items import Ints, Items

_FOUND, _IMPOSSIBLE = 0, 1
_FIRST_TRIES = 10
"""The part of the work for the first try at the goal is one in so many; every other height gets half of that."""


@dataclass(slots=True)
class Improvement:
    """How far the improvement of a part has come."""

    items: Items
    offsets: Ints
    height: int
    bound: int
    """No packing of the part is lower."""
    method: str = ""
    work: int = 0


def improve(state: Improvement, goal: int, effort: PackingEffort, *, only_goal: bool) -> Iterator[None]:
    """Lower `state` in place until its height is at most `goal`, or its bound, or the work is used up.

    Yields after every step, so that the caller can take what was found. Exact search tries the goal with little work,
    then the penalty loop does. Then exact search goes on: with `only_goal` at the goal, else at heights between what
    is refuted and what is found.
    """
    search = _ExactSearch(state, effort)
    steps: list[Callable[[], object]] = [
        lambda: search.attempt(goal, effort.exact_work // _FIRST_TRIES),
        lambda: _penalty_loop(state, goal, effort.priority_work),
    ]
    for step in [*steps, lambda: search.attempt(goal, search.left)] if only_goal else steps:
        if state.height <= goal or goal < state.bound:
            break
        step()
        yield
    if not only_goal:
        yield from _close_in(state, goal, search, effort.exact_work // (2 * _FIRST_TRIES))


def _close_in(state: Improvement, goal: int, search: "_ExactSearch", work: int) -> Iterator[None]:
    """Try heights halfway between what failed and what was found; once none is left, all again with more work.

    Heights go in steps of what divides all sizes, alignments and fixed offsets.
    """
    failed = goal - search.step
    while search.left > 0 and state.height > max(goal, state.bound):
        least = max(goal, state.bound) - search.step
        failed = max(failed, least)
        if failed + search.step >= state.height:
            failed, work = least, 4 * work
        middle = (failed + state.height) // 2 // search.step * search.step
        middle = min(max(middle, failed + search.step), state.height - search.step)
        if not search.attempt(middle, work):
            failed = middle
        yield


def _penalty_loop(state: Improvement, goal: int, work: int) -> None:
    offsets, used = _native.pack_by_priority(state.items.native(), goal, True, work)
    state.work += used
    height = state.items.height(offsets)
    if height < state.height:
        state.offsets, state.height, state.method = offsets, height, "penalty-loop"


class _ExactSearch:
    def __init__(self, state: Improvement, effort: PackingEffort) -> None:
        self._state = state
        self._native = state.items.native()
        self.step = _common_divisor(state.items)
        self.left = effort.exact_work if len(state.items) <= effort.exact_items else 0

    def attempt(self, height: int, work: int) -> bool:
        """Search for a packing of a height; keep it, or what its refutation says of the bound."""
        work = min(work, self.left)
        if work <= 0:
            return False
        fit, offsets, used = _native.pack_within(self._native, height, work)
        self.left -= max(used, 1)
        state = self._state
        state.work += used
        if fit == _FOUND:
            state.offsets, state.height, state.method = offsets, state.items.height(offsets), "exact-search"
        elif fit == _IMPOSSIBLE:
            state.bound = max(state.bound, height // self.step * self.step + self.step)
        return fit == _FOUND


def _common_divisor(items: Items) -> int:
    figures = [items.sizes, items.alignment, items.fixed[items.fixed != FREE], items.pieces[:, 2:].reshape(-1)]
    return int(np.gcd.reduce(np.concatenate(figures)))
