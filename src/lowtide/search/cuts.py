"""Minimum closure cuts of a problem, found once each."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.analysis.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The least memory at which an op can run."""

    peak_bytes: int
    before: NDArray[np.bool_]
    """Per op, whether it runs before in an order that attains `peak_bytes`."""


class Cuts:
    """Cuts of one problem, by op and memory space; counts the work of finding them."""

    def __init__(self, problem: Problem) -> None:
        self._cutters = [
            _native.ClosureCutter(problem.native, space, problem.in_place) for space in range(len(problem.graph.spaces))
        ]
        self._found: dict[tuple[int, int], Cut] = {}
        self.work = 0

    def of(self, op: int, space: int) -> Cut:
        """Return the cut of an op in a memory space; one flow when it is asked for first."""
        found = self._found.get((op, space))
        if found is None:
            peak, before, work = self._cutters[space].cut(op)
            found = self._found[op, space] = Cut(peak, before.view(np.bool_))
            self.work += work
        return found
