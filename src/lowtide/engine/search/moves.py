"""The distance between orders, and moves of ops."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph.execution import is_valid_order
from lowtide.engine.search.fit import find_fit
from lowtide.engine.search.solve import Solution

_FIT_WORK = 20_000_000
_MOST_TRIES = 200
_SWAPS_PER_ORDER = 2_000


def moved_ops(order: Order, given: Order) -> list[int]:
    """Return a minimal set of ops to move to turn one order into the other, in the given order. O(n log n).

    The others are a longest common subsequence.
    """
    place = np.empty(len(given), np.int64)
    place[given] = np.arange(len(given))
    ends: list[int] = []
    rows: list[int] = []
    before = [-1] * len(order)
    targets: list[int] = place[order].tolist()
    for row, target in enumerate(targets):
        length = bisect_left(ends, target)
        before[row] = rows[length - 1] if length else -1
        ends[length : length + 1] = [target]
        rows[length : length + 1] = [row]
    moves = np.ones(len(order), np.bool_)
    row = rows[-1] if rows else -1
    while row >= 0:
        moves[targets[row]] = False
        row = before[row]
    return given[moves].tolist()


def bring_nearer(
    problem: Problem, order: Order, given: Order, accepts: Callable[[Order], bool], most_tries: int
) -> Order:
    """Move an order's ops back to their given places while `accepts` accepts the result.

    Delta debugging (Zeller 1999) over blocks of moved ops. Tries at most `most_tries` orders. Valid, never farther
    away, and accepted unless it is `order` itself.
    """
    moved = moved_ops(order, given)
    size = max(1, len(moved) // 2)
    tries = 0
    while moved:
        changed = False
        for first in range(0, len(moved), size):
            for late in (False, True):
                if tries >= most_tries:
                    return order
                tries += 1
                nearer = _move_back(order, given, moved, moved[first : first + size], late=late)
                better = len(moved_ops(nearer, given)) < len(moved)
                if better and is_valid_order(problem.graph, nearer) and accepts(nearer):
                    order, changed = nearer, True
                    break
            if changed:
                break
        if changed:
            moved = moved_ops(order, given)
            size = min(size, max(1, len(moved) // 2))
        elif size == 1:
            break
        else:
            size //= 2
    return order


def _move_back(order: Order, given: Order, moved: Sequence[int], block: Sequence[int], *, late: bool) -> Order:
    block_ops = set(block)
    other_moved = set(moved) - block_ops
    neighbors: dict[int, list[int]] = {}
    anchor = -1
    for op in given[::-1].tolist() if late else given.tolist():
        if op in block_ops:
            neighbors.setdefault(anchor, []).append(op)
        elif op not in other_moved:
            anchor = op
    result: list[int] = neighbors.pop(-1, []) if not late else []
    for op in order.tolist():
        if op in block_ops:
            continue
        near = neighbors.get(op, [])
        result += [*near[::-1], op] if late else [op, *near]
    if late:
        result += neighbors.get(-1, [])[::-1]
    return np.asarray(result, np.int32)


def equal_orders(problem: Problem, solution: Solution, count: int) -> Iterator[Order]:
    """Yield up to `count` distinct orders within the solution's peak in every memory space.

    Starts with the solution's order. Computed on demand. Deterministic.
    """
    seen: set[bytes] = set()
    for order in _candidates(problem, solution):
        if len(seen) == count:
            return
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            yield order


def _candidates(problem: Problem, solution: Solution) -> Iterator[Order]:
    own, given = solution.order, problem.given_order()
    most = np.asarray(solution.peaks, np.int64)

    def keep(order: Order) -> bool:
        return bool((problem.evaluate(order).peaks <= most).all())

    yield own
    yield bring_nearer(problem, own, given, keep, _MOST_TRIES)
    for preference in (given, given[::-1], own[::-1]):
        found = find_fit(problem, solution.peaks, np.ascontiguousarray(preference), _FIT_WORK)
        if found.order is not None:
            yield found.order
    for first in range(min(len(own) - 1, _SWAPS_PER_ORDER)):
        swapped = own.copy()
        swapped[first : first + 2] = swapped[first : first + 2][::-1]
        if is_valid_order(problem.graph, swapped) and keep(swapped):
            yield swapped
