"""Finds out why no order stays within a budget, in a way that plain code can replay."""

from typing import TYPE_CHECKING

import numpy as np

from lowtide import _native
from lowtide.analysis.problem import Order, Problem
from lowtide.index_spaces import SpaceId
from lowtide.search.proof_log import Cycle, Either, Line, Need, Over

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEED, _OVER, _CYCLE, _EITHER = range(4)  # shared with the native kernel


def find_refutation(
    problem: Problem, order: Order, space: SpaceId, budget_bytes: int, most_work: int
) -> tuple[Line, ...]:
    """Return a log that no order stays within a budget of one memory space, an empty one where none is found.

    Dependencies that every such order obeys are deduced from minimum cuts, each from those before it, until an op
    exceeds the budget. Where that ends, two ops are taken one way round and then the other. `order` says which ops are
    the worst: those are looked at first. Stops after about `most_work` arcs of flow graphs; deterministic. Exact, but
    not complete: no log does not mean that some order fits.
    """
    profile: NDArray[np.int64] = _native.profile(problem.native, order, problem.in_place)
    bytes_here = profile.reshape(len(order), len(problem.graph.spaces))[:, space]
    worst_first = order[np.argsort(-bytes_here, kind="stable")]
    flat = _native.refute(problem.native, space, problem.in_place, budget_bytes, worst_first, most_work)
    return tuple(map(_line, flat.reshape(-1, 4).tolist()))


def _line(values: list[int]) -> Line:
    match values:
        case [kind, op, earlier, later] if kind == _NEED:
            return Need(op, earlier, later)
        case [kind, op, _, _] if kind == _OVER:
            return Over(op)
        case [kind, one, other, _] if kind == _EITHER:
            return Either(one, other)
        case _:
            return Cycle()
