"""How far one order is from another, and how to bring it nearer without needing more memory."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np

from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph.execution import is_valid_order


def moved_ops(order: Order, given: Order) -> list[int]:
    """Return the fewest ops that must be moved to turn one order into another, in the given order.

    What need not move is a longest common subsequence: of two permutations, a longest rising one. O(n log n).
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
    problem: Problem,
    order: Order,
    given: Order,
    keep: Callable[[Order], bool],
    most_tries: int,
) -> Order:
    """Move ops of an order back to their places in the given one as long as `keep` accepts what comes out.

    Ops that were moved go back in blocks, which are halved down to single ops (delta debugging, Zeller 1999). A block
    goes right after the op that precedes it in the given order, or right before the one that follows. Tries at most
    `most_tries` orders. The result is valid, never farther away, and accepted by `keep` unless it is `order` itself.
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
                nearer = _taken_back(order, given, moved, moved[first : first + size], late=late)
                better = len(moved_ops(nearer, given)) < len(moved)
                if better and is_valid_order(problem.graph, nearer) and keep(nearer):
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


def _taken_back(order: Order, given: Order, moved: Sequence[int], block: Sequence[int], *, late: bool) -> Order:
    """Return the order with a block of moved ops beside their neighbors of the given order."""
    going = set(block)
    elsewhere = set(moved) - going
    beside: dict[int, list[int]] = {}
    anchor = -1
    for op in given[::-1].tolist() if late else given.tolist():
        if op in going:
            beside.setdefault(anchor, []).append(op)
        elif op not in elsewhere:
            anchor = op
    result: list[int] = beside.pop(-1, []) if not late else []
    for op in order.tolist():
        if op in going:
            continue
        near = beside.get(op, [])
        result += [*near[::-1], op] if late else [op, *near]
    if late:
        result += beside.get(-1, [])[::-1]
    return np.asarray(result, np.int32)
