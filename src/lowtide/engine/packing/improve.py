"""A lower packing of one part: joined blocks, two exact searches and the penalty loop by turns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from lowtide import _native
from lowtide.core.effort import PackingEffort
from lowtide.engine.packing.buffers import FREE
from lowtide.engine.packing.items import Ints, Items

Kernel = Callable[[int, int], tuple[int, Ints, int]]
"""Takes a height and a limit of work; returns whether a packing was found, its offsets, and the work."""
_FOUND, _IMPOSSIBLE = 0, 1
_LOOKS = (1_000_000, 10_000_000, 100_000_000)
"""With so much all searches look at the goal by turns before the long tries; it comes on top of their work."""
_JOINED_LOOKS = 4
"""The search over joined blocks gets so many times that: it settles the most, and early."""
_SHARES = {"exact-search": (3, 10), "second-exact-search": (6, 4), "joined-blocks": (2, 4)}
"""The part of all work that a search gets is one in so many, and of that a try at the goal; other heights get half."""
_SHARE_FIRST = 4
"""Of the penalty loop's work, one part in so many comes before the larger looks."""
_NEAR = 50
"""A part is nearly done when what it has above the goal is at most the goal's part of one in so many."""


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
    looked_at: int | None = None
    """The goal that the first look of every search was at already, in vain."""


def look(state: Improvement, goal: int, effort: PackingEffort) -> Iterator[None]:
    """Lower `state` in place as `improve` does, by the first look of every search alone; some milliseconds."""
    searches = _searches(state, effort)
    yield from _until(state, goal, [partial(search.look, goal, search.looks[0]) for search in searches])
    state.looked_at = goal


def improve(state: Improvement, goal: int, effort: PackingEffort, *, only_goal: bool) -> Iterator[None]:
    """Lower `state` in place until its height is at most `goal`, or its bound, or the work is used up.

    Yields after every step, so that the caller can take what was found. The searches try the goal by turns, with more
    and more work, and the penalty loop after the first look and after the last. Then they go on: with `only_goal` at
    the goal, else one after the other at heights between what is refuted and what is found. What one finds or proves
    the others start from, and the limit of work is one for all. A part with too many items for them gets that work for
    its penalty loop instead, where it is nearly done.
    """
    searches = _searches(state, effort)
    looks: list[list[Callable[[], object]]] = [
        [partial(search.look, goal, search.looks[k]) for search in searches if work < search.tries]
        for k, work in enumerate(_LOOKS)
    ]
    # What the penalty loop settles it mostly settles soon, long before a large look in vain would end.
    steps = [] if state.looked_at == goal else looks[0]
    steps += [lambda: _penalty_loop(state, goal, effort.priority_work // _SHARE_FIRST, joined=False)]
    steps += [look_once for more in looks[1:] for look_once in more]
    steps += [partial(search.attempt, goal, search.tries) for search in searches]
    if state.items.plain:
        steps.append(lambda: _penalty_loop(state, goal, effort.priority_work, joined=True))
    spare = 0 if searches else effort.exact_work
    steps.append(lambda: _penalty_loop(state, goal, effort.priority_work + spare * _near(state, goal), joined=False))
    if only_goal:
        steps += [partial(_use_up, search, goal) for search in searches]
    yield from _until(state, goal, steps)
    if not only_goal:
        for search in searches:
            yield from _close_in(state, goal, search, search.tries // 2)


def _until(state: Improvement, goal: int, steps: list[Callable[[], object]]) -> Iterator[None]:
    for improve_once in steps:
        if state.height <= goal or goal < state.bound:
            return
        improve_once()
        yield


def _use_up(search: "_HeightSearch", goal: int) -> None:
    search.attempt(goal, search.left)


def _searches(state: Improvement, effort: PackingEffort) -> list["_HeightSearch"]:
    """Return the searches that can take the part, with their parts of the work; two take plain rectangles only."""
    items = state.items
    if len(items) > effort.exact_items:
        return []
    native = items.native()

    def canonically(height: int, limit: int) -> tuple[int, Ints, int]:
        return _native.pack_within_canonically(native, items.steps, height, limit)

    def joined(height: int, limit: int) -> tuple[int, Ints, int]:
        return _native.pack_within_joined(native, height, limit)

    def in_any_form(height: int, limit: int) -> tuple[int, Ints, int]:
        return _native.pack_within(native, height, limit)

    if not items.plain:
        return [_HeightSearch(state, in_any_form, "exact-search", effort.exact_work)]
    of_blocks = [_JOINED_LOOKS * work for work in _LOOKS]
    return [
        _HeightSearch(state, joined, "joined-blocks", effort.exact_work, looks=of_blocks),
        _HeightSearch(state, canonically, "second-exact-search", effort.exact_work),
        _HeightSearch(state, in_any_form, "exact-search", effort.exact_work),
    ]


def _close_in(state: Improvement, goal: int, search: "_HeightSearch", work: int) -> Iterator[None]:
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


def _near(state: Improvement, goal: int) -> bool:
    return state.height - goal <= goal // _NEAR


def _penalty_loop(state: Improvement, goal: int, work: int, *, joined: bool) -> None:
    native = state.items.native()
    if joined:
        offsets, used = _native.pack_joined_by_priority(native, goal, work)
    else:
        offsets, used = _native.pack_by_priority(native, goal, True, work)
    state.work += used
    height = state.items.height(offsets)
    if height < state.height:
        method = "joined-penalty-loop" if joined else "penalty-loop"
        state.offsets, state.height, state.method = offsets, height, method


class _HeightSearch:
    def __init__(
        self, state: Improvement, kernel: Kernel, method: str, work: int, *, looks: Sequence[int] = _LOOKS
    ) -> None:
        self._state = state
        self._kernel = kernel
        self._method = method
        self.step = _common_divisor(state.items)
        share, tries = _SHARES[method]
        self.left = work // share if state.items.plain else work
        self.tries = self.left // tries
        self.looks = looks

    def attempt(self, height: int, work: int) -> bool:
        """Search for a packing of a height; keep it, or what its refutation says of the bound."""
        work = min(work, self.left)
        if work <= 0:
            return False
        fit, used = self.look(height, work)
        settled = fit in (_FOUND, _IMPOSSIBLE)
        self.left -= max(used, 1 if settled else work)  # one that ends early without an answer has no more ideas
        return fit == _FOUND

    def look(self, height: int, work: int) -> tuple[int, int]:
        """Search as `attempt` does, with work that is not taken off what is left; return the answer and that work."""
        fit, offsets, used = self._kernel(height, work)
        state = self._state
        state.work += used
        if fit == _FOUND:
            state.offsets, state.height, state.method = offsets, state.items.height(offsets), self._method
        elif fit == _IMPOSSIBLE:
            state.bound = max(state.bound, height // self.step * self.step + self.step)
        return fit, used


def _common_divisor(items: Items) -> int:
    figures = [items.sizes, items.alignment, items.fixed[items.fixed != FREE], items.pieces[:, 2:].reshape(-1)]
    return int(np.gcd.reduce(np.concatenate(figures)))
