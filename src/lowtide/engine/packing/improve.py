"""Lower the packing of one part."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from lowtide import _native
from lowtide.core.effort import PackingEffort
from lowtide.engine.packing.buffers import FREE, Ints
from lowtide.engine.packing.items import Items

Kernel = Callable[[int, int], tuple[int, Ints, int]]
_FOUND, _IMPOSSIBLE = 0, 1
_ROUNDS = (1_000_000, 10_000_000, 100_000_000)
_JOINED_FACTOR = 4
_SHARES = {"exact-search": (3, 10), "second-exact-search": (6, 4), "joined-blocks": (2, 4)}
"""Parts of all work: one in n per search, and one in m of that per try at the goal."""
_SHARE_FIRST = 4
_STEPS = 40
_MOST_ABOVE, _DESCENT_PARTS = 8, 128
_STARTS = 2
_DESCENTS, _EARLY_DESCENTS = 18, 9
"""All descents, and those before the largest round."""
_NEAR = 50
"""A part at most 1/50 above the goal is nearly done."""


@dataclass(slots=True)
class Improvement:
    """State of an improvement."""

    items: Items
    offsets: Ints
    height: int
    bound: int
    method: str = ""
    work: int = 0
    missed_goal: int | None = None


def improve_briefly(state: Improvement, goal: int, effort: PackingEffort) -> Iterator[None]:
    """Lower `state` in place by the first round of every search."""
    searches = _searches(state, effort)
    yield from _run_steps(state, goal, [partial(search.run, goal, search.rounds[0]) for search in searches])
    state.missed_goal = goal


def improve(state: Improvement, goal: int, effort: PackingEffort, *, only_goal: bool) -> Iterator[None]:
    """Lower `state` in place until its height reaches `goal` or its bound, or the work ends.

    Yields after every step. The searches try the goal in rounds with more and more work, then, without `only_goal`,
    heights between the refuted and the found ones.
    """
    searches = _searches(state, effort)
    rounds: list[list[Callable[[], object]]] = [
        [partial(search.run, goal, search.rounds[k]) for search in searches if work < search.try_work]
        for k, work in enumerate(_ROUNDS)
    ]

    def last_work() -> int:
        is_nearly_done = state.height - goal <= goal // _NEAR
        return effort.priority_work + (effort.exact_work if is_nearly_done and not searches else 0)

    steps = [] if state.missed_goal == goal else rounds[0]
    # The penalty loop mostly succeeds early, long before a large round would fail.
    steps += [lambda: _penalty_loop(state, goal, effort.priority_work // _SHARE_FIRST, joined=False)]
    if state.items.plain:
        steps.append(lambda: _eject(state, goal, effort.priority_work // 2))
    descents = _descents(state, goal, searches, effort)
    early = 0 if only_goal else _EARLY_DESCENTS  # a capacity is mostly met by a round, without waste
    steps += [*rounds[1], *descents[:early], *rounds[2]]
    if not only_goal:
        steps += descents[early:]
    steps += [partial(search.attempt, goal, search.try_work) for search in searches]
    if state.items.plain:
        steps.append(lambda: _penalty_loop(state, goal, effort.priority_work, joined=True))
    steps.append(lambda: _penalty_loop(state, goal, last_work(), joined=False))
    if only_goal:
        steps += descents
        steps += [partial(search.use_up, goal) for search in searches]
    yield from _run_steps(state, goal, steps)
    if not only_goal:
        if state.items.plain:
            yield from _lower_by_ejection(state, goal, 2 * effort.priority_work)
        for search in searches:
            yield from _close_in(state, goal, search, search.try_work // 2)


def _run_steps(state: Improvement, goal: int, steps: list[Callable[[], object]]) -> Iterator[None]:
    for step in steps:
        if state.height <= goal or goal < state.bound:
            return
        step()
        yield


def _searches(state: Improvement, effort: PackingEffort) -> list["_HeightSearch"]:
    items = state.items
    if len(items) > effort.exact_items:
        return []
    native = items.native()

    work, block_rounds = effort.exact_work, [_JOINED_FACTOR * work for work in _ROUNDS]
    exact = _HeightSearch(state, partial(_native.pack_within, native), "exact-search", work)
    if not items.plain:
        return [exact]
    joined = partial(_native.pack_within_joined, native)
    canonical = partial(_native.pack_within_canonically, native, items.steps)
    return [
        _HeightSearch(state, joined, "joined-blocks", work, rounds=block_rounds),
        _HeightSearch(state, canonical, "second-exact-search", work),
        exact,
    ]


def _close_in(state: Improvement, goal: int, search: "_HeightSearch", work: int) -> Iterator[None]:
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


def _eject(state: Improvement, height: int, work: int, seed: int = 0) -> tuple[bool, int]:
    height -= height % common_divisor(state.items)  # other offsets would waste bytes
    fit, offsets, used = _native.pack_within_by_ejection(state.items.native(), state.offsets, height, work, seed)
    state.work += used
    if fit == _FOUND:
        state.offsets, state.height, state.method = offsets, state.items.height(offsets), "ejection"
    return fit == _FOUND, used


def _lower_by_ejection(state: Improvement, goal: int, work: int, seed: int = 0) -> Iterator[None]:
    divisor = common_divisor(state.items)
    step = max(divisor, (state.height - goal) // _STEPS // divisor * divisor)
    while work > 0 and state.height > max(goal, state.bound):
        found, used = _eject(state, max(goal, state.bound, state.height - step), work, seed)
        work -= max(used, 1)
        if not found:
            return
        yield


def _descents(
    state: Improvement, goal: int, searches: list["_HeightSearch"], effort: PackingEffort
) -> list[Callable[[], None]]:
    """Return steps that lower packings by ejection from several starts: one may miss a goal that others reach."""
    work = _JOINED_FACTOR * _ROUNDS[1]
    if not searches or not state.items.plain or work >= searches[0].try_work:
        return []
    starts = cache(lambda: low_starts(state, goal, work))

    def run(number: int) -> None:
        seed, place = divmod(number, _STARTS + 1)
        for start in [*starts()[:_STARTS], state.offsets][place : place + 1]:
            descend(state, goal, start, effort.priority_work // 2, seed)

    return [partial(run, number) for number in range(_DESCENTS)]


def low_starts(state: Improvement, goal: int, work: int) -> list[Ints]:
    divisor = common_divisor(state.items)  # joined blocks take bytes that nothing can use for holes
    found: list[Ints] = []
    for parts in range(1, _MOST_ABOVE + 1):
        height = goal + goal * parts // _DESCENT_PARTS // divisor * divisor
        fit, offsets, used = _native.pack_within_joined(state.items.native(), height, work)
        state.work += used
        if fit == _FOUND:
            found.append(offsets)
        if len(found) == _STARTS:
            break
    return found


def descend(state: Improvement, goal: int, start: Ints, work: int, seed: int) -> None:
    trial = Improvement(state.items, start, state.items.height(start), state.bound, "joined-blocks")
    for _ in _lower_by_ejection(trial, goal, work, seed):
        pass
    state.work += trial.work
    if trial.height < state.height:
        state.offsets, state.height, state.method = trial.offsets, trial.height, trial.method


class _HeightSearch:
    def __init__(
        self, state: Improvement, kernel: Kernel, method: str, work: int, *, rounds: Sequence[int] = _ROUNDS
    ) -> None:
        self._state = state
        self._kernel = kernel
        self._method = method
        self.step = common_divisor(state.items)
        share, try_work = _SHARES[method]
        self.left = work // share if state.items.plain else work
        self.try_work = self.left // try_work
        self.rounds = rounds

    def attempt(self, height: int, work: int) -> bool:
        work = min(work, self.left)
        if work <= 0:
            return False
        fit, used = self.run(height, work)
        settled = fit in (_FOUND, _IMPOSSIBLE)
        self.left -= max(used, 1 if settled else work)  # a search that ends early without an answer is exhausted
        return fit == _FOUND

    def use_up(self, height: int) -> bool:
        return self.attempt(height, self.left)

    def run(self, height: int, work: int) -> tuple[int, int]:
        fit, offsets, used = self._kernel(height, work)
        state = self._state
        state.work += used
        if fit == _FOUND:
            state.offsets, state.height, state.method = offsets, state.items.height(offsets), self._method
        elif fit == _IMPOSSIBLE:
            state.bound = max(state.bound, height // self.step * self.step + self.step)
        return fit, used


def common_divisor(items: Items) -> int:
    """Return a common divisor of all offsets and heights that a packing needs."""
    figures = [items.sizes, items.fixed[items.fixed != FREE], items.pieces[:, 2:].reshape(-1)]
    divisor = np.gcd.reduce(np.concatenate(figures))
    if (divisor % items.alignment == 0).all():
        return int(divisor)
    return int(np.gcd(divisor, np.gcd.reduce(items.alignment)))
