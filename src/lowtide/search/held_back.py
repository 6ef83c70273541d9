"""Cuts of an op under the assumption that certain other ops run later."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.analysis.problem import Problem
from lowtide.graph import Rows
from lowtide.search.cuts import Cut


class HeldBackCuts:
    """The least memory at which an op can run while others are held back; counts the work of finding it."""

    def __init__(self, problem: Problem, space: int) -> None:
        predecessors = problem.graph.structure.predecessors
        self.work = 0
        self.added = _least_added_bytes(problem, space)
        """Per op, the least bytes it allocates while it runs, if every in-place pair it offers were taken."""
        self._problem = problem
        self._space = space
        self._earlier = predecessors.values
        self._later = predecessors.owners()
        self._transient = np.ravel(problem.transient)

    def of(self, op: int, held_back: NDArray[np.int32], *, only_after: NDArray[np.int32] | None = None) -> Cut:
        """Return the cut of an op where all of `held_back` run after it; none of them may be needed by it.

        With `only_after`, a closed set, the op is taken to wait for these ops alone, and may take no in-place pair.
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
        return Cut(peak, before.view(np.bool_))


def _rows(owners: NDArray[np.int32], values: NDArray[np.int32], n_rows: int) -> Rows:
    """Return rows of ascending values without repeats."""
    both = np.unique(owners.astype(np.int64) << 32 | values)
    offsets = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(both >> 32, minlength=n_rows), out=offsets[1:])
    return Rows(offsets, (both & 0xFFFFFFFF).astype(np.int32))


def _least_added_bytes(problem: Problem, space: int) -> NDArray[np.int64]:
    graph = problem.graph
    here = np.where(graph.buffer_spaces == space, graph.sizes, 0)
    allocates = graph.structure.allocates
    added = problem.transient[:, space].copy()
    np.add.at(added, allocates.owners(), here[allocates.values])
    if problem.in_place:
        pairs = np.unique(graph.in_place.owners()[1::2].astype(np.int64) << 32 | graph.in_place.values[1::2])
        np.subtract.at(added, pairs >> 32, here[pairs & 0xFFFFFFFF])
    return added
