"""A lower packing of one part: two exact searches and the penalty loop by turns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from lowtide import _native
from lowtide.effort import PackingEffort
from lowtide.packing.buffers import FREE
from lowtide.packing.items import Ints, Items

Kernel = Callable[[int, int], tuple[int, Ints, int]]
"""Takes a height and a limit of work; returns whether a packing was found, its offsets, and the work."""
_FOUND, _IMPOSSIBLE = 0, 1
_FIRST_TRIES = 10
"""The part of the first search's work for a try at the goal is one in so many; every other height gets half of that."""
_LOOKS = (10_000_000, 100_000_000)
"""With so much both searches look at the goal by turns before that, as either may be far quicker; it comes on top."""
_SECOND_SHARE = 6
"""The part of all work that the second search gets is one in so many."""
_SECOND_TRIES = 4
"""The part of that for a try at the goal is one in so many; every other height gets half of that."""


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

    Yields after every step, so that the caller can take what was found. Both exact searches try the goal by turns,
    with more and more work, then the penalty loop does. Then both go on: with `only_goal` at the goal, else one after
    the other at heights between what is refuted and what is found. What one finds or proves the other starts from, and
    the limit of work is one for both.
    """
    first, second = _exact_searches(state, effort)
    both = (first, second)
    steps: list[Callable[[], object]] = [
        partial(search.look, goal, work) for work in _LOOKS for search in both if work < search.tries
    ]
    steps += [partial(search.attempt, goal, search.tries) for search in both]
    steps.append(lambda: _penalty_loop(state, goal, effort.priority_work))
    if only_goal:
        steps += [lambda: second.attempt(goal, second.left), lambda: first.attempt(goal, first.left)]
    for improve_once in steps:
        if state.height <= goal or goal < state.bound:
            break
        improve_once()
        yield
    if not only_goal:
        yield from _close_in(state, goal, first, first.tries // 2)
        yield from _close_in(state, goal, second, second.tries // 2)


def _exact_searches(state: Improvement, effort: PackingEffort) -> tuple["_ExactSearch", "_ExactSearch"]:
    """Return both, with their parts of the work; the second one takes plain rectangles only."""
    items, native = state.items, state.items.native()
    work = effort.exact_work if len(items) <= effort.exact_items else 0

    def canonically(height: int, limit: int) -> tuple[int, Ints, int]:
        return _native.pack_within_canonically(native, items.steps, height, limit)

    def in_any_form(height: int, limit: int) -> tuple[int, Ints, int]:
        return _native.pack_within(native, height, limit)

    second_work = work // _SECOND_SHARE if items.plain else 0
    return (
        _ExactSearch(state, in_any_form, "exact-search", work - second_work, (work - second_work) // _FIRST_TRIES),
        _ExactSearch(state, canonically, "second-exact-search", second_work, second_work // _SECOND_TRIES),
    )


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
    def __init__(self, state: Improvement, kernel: Kernel, method: str, work: int, tries: int) -> None:
        self._state = state
        self._kernel = kernel
        self._method = method
        self.step = _common_divisor(state.items)
        self.left = work
        self.tries = tries

    def attempt(self, height: int, work: int) -> bool:
        """Search for a packing of a height; keep it, or what its refutation says of the bound."""
        work = min(work, self.left)
        if work <= 0:
            return False
        found, used = self.look(height, work)
        self.left -= max(used, 1)
        return found

    def look(self, height: int, work: int) -> tuple[bool, int]:
        """Search as `attempt` does, with work that is not taken off what is left; return that work, too."""
        fit, offsets, used = self._kernel(height, work)
        state = self._state
        state.work += used
        if fit == _FOUND:
            state.offsets, state.height, state.method = offsets, state.items.height(offsets), self._method
        elif fit == _IMPOSSIBLE:
            state.bound = max(state.bound, height // self.step * self.step + self.step)
        return fit == _FOUND, used


def _common_divisor(items: Items) -> int:
    figures = [items.sizes, items.alignment, items.fixed[items.fixed != FREE], items.pieces[:, 2:].reshape(-1)]
    return int(np.gcd.reduce(np.concatenate(figures)))
