"""Finds out why no order stays within a budget, in a way that plain code can replay."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from lowtide import _native
from lowtide.core.index_spaces import SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.search.proof_log import Cycle, Either, First, Last, Line, Need, Next, Over, Previous

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEED, _OVER, _CYCLE, _EITHER, _FIRST, _LAST, _NEXT, _PREVIOUS = range(8)  # shared with the native kernel
_OF_OPS = {_FIRST: First, _LAST: Last, _NEXT: Next, _PREVIOUS: Previous}
"""Lines whose ops follow, a row each."""


def find_refutation(
    problem: Problem, order: Order, space: SpaceId, budget_bytes: int, most_work: int
) -> tuple[Line, ...]:
    """Return a log that no order stays within a budget of one memory space, an empty one where none is found.

    Dependencies that every such order obeys are deduced from minimum cuts, each from those before it, until an op
    exceeds the budget. Where that ends, two ops are taken one way round and then the other. Where no log is found so,
    sets are walked from the start: what may run first without harm, up to a valley, then each op that may come next.
    `order` says which ops are the worst: those are looked at first. Stops after about `most_work` arcs of flow graphs
    for each of both; deterministic. Exact, but not complete: no log does not mean that some order fits.
    """
    profile: NDArray[np.int64] = _native.profile(problem.native, order, problem.in_place)
    bytes_here = profile.reshape(len(order), len(problem.graph.spaces))[:, space]
    worst_first = order[np.argsort(-bytes_here, kind="stable")]
    flat = _native.refute(problem.native, space, problem.in_place, budget_bytes, worst_first, most_work)
    return tuple(_lines(iter(flat.reshape(-1, 4).tolist())))


def _lines(rows: Iterator[list[int]]) -> Iterator[Line]:
    for kind, one, other, last in rows:
        match kind:
            case kind if kind == _NEED:
                yield Need(one, other, last)
            case kind if kind == _OVER:
                yield Over(one)
            case kind if kind == _EITHER:
                yield Either(one, other)
            case kind if kind in _OF_OPS:
                yield _OF_OPS[kind](tuple(op for _, op, *_ in islice(rows, one)))
            case _:
                yield Cycle()
