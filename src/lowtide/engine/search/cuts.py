"""The least memory at which an op can run."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import OpId, Place, SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Rows


@dataclass(frozen=True, slots=True, eq=False)
class ClosureCut:
    """The least memory of an op."""

    peak_bytes: int
    before: NDArray[np.bool_]
    """Mask of ops before it in an order that attains `peak_bytes`."""


def run_after_cut(order: Order, place: Place, cut: ClosureCut) -> Order:
    """Return the order of the ops before the cut, the op at `place`, and the rest."""
    before = cut.before[order]
    after = ~before
    after[place] = False
    return np.concatenate([order[before], order[place : place + 1], order[after]])


class ClosureCuts:
    """Closure cuts by op and memory space."""

    def __init__(self, problem: Problem) -> None:
        self._cutters = [
            _native.ClosureCutter(problem.native, space, problem.in_place) for space in range(len(problem.graph.spaces))
        ]
        self._found: dict[tuple[int, int], ClosureCut] = {}
        self.work = 0

    def of(self, op: OpId, space: SpaceId) -> ClosureCut:
        found = self._found.get((op, space))
        if found is None:
            peak, before, work = self._cutters[space].cut(op)
            found = self._found[op, space] = ClosureCut(peak, before.view(np.bool_))
            self.work += work
        return found


class HeldBackCuts:
    """Closure cuts with other ops held back."""

    def __init__(self, problem: Problem, space: SpaceId) -> None:
        predecessors = problem.graph.structure.predecessors
        self.work = 0
        self.added = _least_added_bytes(problem, space)
        self._problem = problem
        self._space = space
        self._earlier = predecessors.values
        self._later = predecessors.owners()
        self._transient = np.ravel(problem.transient)

    def of(self, op: OpId, held_back: NDArray[np.int32], *, only_after: NDArray[np.int32] | None = None) -> ClosureCut:
        """Return the cut of an op with all `held_back` ops, which are no ancestors, after it.

        With `only_after`, a closed set, the op depends on these ops only and uses no in-place pair.
        """
        earlier, later = self._earlier, self._later
        if only_after is not None:
            kept = later != op
            earlier = np.concatenate([earlier[kept], only_after])
            later = np.concatenate([later[kept], np.full(len(only_after), op, np.int32)])
        others = held_back[held_back != op]
        earlier = np.concatenate([earlier, np.full(len(others), op, np.int32)])
        later = np.concatenate([later, others])
        n_ops = self._problem.graph.n_ops
        structure = replace(
            self._problem.graph.structure,
            predecessors=_rows(later, earlier, n_ops),
            successors=_rows(earlier, later, n_ops),
        )
        view = _native.GraphView(self._problem.graph, structure, self._transient, len(self._problem.graph.spaces))
        in_place = self._problem.in_place and only_after is None
        peak, before, work = _native.ClosureCutter(view, self._space, in_place).cut(op)
        self.work += work + len(earlier)
        return ClosureCut(peak, before.view(np.bool_))


def _rows(owners: NDArray[np.int32], values: NDArray[np.int32], n_rows: int) -> Rows:
    both = np.unique(owners.astype(np.int64) << 32 | values)
    offsets = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(both >> 32, minlength=n_rows), out=offsets[1:])
    return Rows(offsets, (both & 0xFFFFFFFF).astype(np.int32))


def _least_added_bytes(problem: Problem, space: SpaceId) -> NDArray[np.int64]:
    graph = problem.graph
    here = np.where(graph.buffer_spaces == space, graph.sizes, 0)
    allocates = graph.structure.allocates
    added = problem.transient[:, space].copy()
    np.add.at(added, allocates.owners(), here[allocates.values])
    if problem.in_place:
        pairs = np.unique(graph.in_place.owners()[1::2].astype(np.int64) << 32 | graph.in_place.values[1::2])
        np.subtract.at(added, pairs >> 32, here[pairs & 0xFFFFFFFF])
    return added
