"""A lower packing of one part: two exact searches and the penalty loop by turns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lowtide import _native
from lowtide.effort import PackingEffort
from lowtide.packing.buffers import FREE
from lowtide.packing.items import Ints, Items

Kernel = Callable[[int, int], tuple[int, Ints, int]]
"""Takes a height and a limit of work; returns whether a packing was found, its offsets, and the work."""
_FOUND, _IMPOSSIBLE = 0, 1
_FIRST_TRIES = 10
"""The part of the work for the first try at the goal is one in so many; every other height gets half of that."""
_SECOND_SHARE = 6
"""The part of the work that the second exact search gets is one in so many; a first try at the goal takes the same part
of that."""


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

    Yields after every step, so that the caller can take what was found. The second exact search tries the goal with
    little work, as it is quick where it finds anything, then the first does, then the penalty loop. Then both go on, the
    first before the second: with `only_goal` at the goal, else at heights between what is refuted and what is found.
    What one proves or finds, the other need not. The limit of work is one for both.
    """
    native, step = state.items.native(), _common_divisor(state.items)
    work = effort.exact_work if len(state.items) <= effort.exact_items else 0
    second_work = work // _SECOND_SHARE if state.items.plain else 0
    first_work = work - work // _SECOND_SHARE
    first = _ExactSearch(state, step, lambda height, limit: _native.pack_within(native, height, limit), first_work)
    second = _ExactSearch(
        state,
        step,
        lambda height, limit: _native.pack_within_canonically(native, state.items.steps, height, limit),
        second_work,
        "second-exact-search",
    )
    steps: list[Callable[[], object]] = [
        lambda: second.attempt(goal, second_work // _SECOND_SHARE),
        lambda: first.attempt(goal, first_work // _FIRST_TRIES),
        lambda: _penalty_loop(state, goal, effort.priority_work),
    ]
    if only_goal:
        steps += [lambda: second.attempt(goal, second.left), lambda: first.attempt(goal, first.left)]
    for improve_once in steps:
        if state.height <= goal or goal < state.bound:
            break
        improve_once()
        yield
    if not only_goal:
        yield from _close_in(state, goal, first, first_work // (2 * _FIRST_TRIES))
        yield from _close_in(state, goal, second, second_work // (2 * _SECOND_SHARE))


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
    def __init__(self, state: Improvement, step: int, kernel: Kernel, work: int, method: str = "exact-search") -> None:
        self._state = state
        self._kernel = kernel
        self._method = method
        self.step = step
        self.left = work

    def attempt(self, height: int, work: int) -> bool:
        """Search for a packing of a height; keep it, or what its refutation says of the bound."""
        work = min(work, self.left)
        if work <= 0:
            return False
        fit, offsets, used = self._kernel(height, work)
        self.left -= max(used, 1)
        state = self._state
        state.work += used
        if fit == _FOUND:
            state.offsets, state.height, state.method = offsets, state.items.height(offsets), self._method
        elif fit == _IMPOSSIBLE:
            state.bound = max(state.bound, height // self.step * self.step + self.step)
        return fit == _FOUND


def _common_divisor(items: Items) -> int:
    figures = [items.sizes, items.alignment, items.fixed[items.fixed != FREE], items.pieces[:, 2:].reshape(-1)]
    return int(np.gcd.reduce(np.concatenate(figures)))
