"""Several orders of the same peak, for whoever has another reason to choose: the packer, for one."""

from collections.abc import Iterator

import numpy as np

from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph.execution import is_valid_order
from lowtide.engine.search.fit import find_fit
from lowtide.engine.search.moves import bring_nearer
from lowtide.engine.search.solve import Solution

_FIT_WORK = 20_000_000
_MOST_TRIES = 200
_SWAPS_PER_ORDER = 2_000


def equal_orders(problem: Problem, solution: Solution, count: int) -> Iterator[Order]:
    """Yield up to `count` different valid orders that need no more than the solution's peak in any memory space.

    The solution's own comes first, then the same brought nearer to the program order. Then comes what exact search
    finds within that peak if ties go to the program order, to its reverse, or to the reverse of the solution; last the
    solution with neighbors swapped. Deterministic. Each is looked for when it is asked for; there may be fewer.
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
