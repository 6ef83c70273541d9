"""A graph made ready for ordering: its arrays as the native kernels take them, and the peak of an order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.engine.analysis.footprint import callee_peaks
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import transient_bytes
from lowtide.engine.plan import Plan

Order = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What an order costs."""

    peaks: NDArray[np.int64]
    """Peak bytes per memory space, persistent buffers left out."""
    peak_places: NDArray[np.int32]
    """Per space, the first position in the order that reaches the peak; -1 when the inputs alone do."""
    pairs: NDArray[np.int32]
    """In-place pairs taken, rows of (op, read buffer, written buffer), shape (k, 3)."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph whose ops are to be ordered; callees are settled already and count with their own peaks."""

    graph: Graph
    callees: Mapping[str, Plan] = field(default_factory=dict[str, Plan])
    """Plans of callees, counted with the `peak_bytes` they claim; a callee without one runs in its program order."""
    in_place: bool = True
    """Whether optional in-place pairs may be taken."""
    callee_peaks: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    """By callee, bytes per space name that count in place of its plan's peak, for bounds: no plan is chosen there."""

    @cached_property
    def transient(self) -> NDArray[np.int64]:
        """Bytes per op and space that only last while the op runs, shape (ops, spaces)."""
        claimed = {name: plan.peak_bytes for name, plan in self.callees.items() if plan.peak_bytes}
        unclaimed = {name: plan for name, plan in self.callees.items() if name not in claimed}
        return transient_bytes(self.graph, callee_peaks(self.graph, unclaimed, {**claimed, **self.callee_peaks}))

    @cached_property
    def native(self) -> _native.GraphView:
        """The arrays of the graph as the kernels borrow them."""
        graph = self.graph
        return _native.GraphView(graph, graph.structure, np.ravel(self.transient), len(graph.spaces))

    def given_order(self) -> Order:
        """Return the program order."""
        return np.arange(self.graph.n_ops, dtype=np.int32)

    def evaluate(self, order: Order) -> Evaluation:
        """Return the peaks of an order with frees at last use, taking in-place pairs if allowed. O(n + e), native."""
        peaks, places, pairs = _native.evaluate(self.native, order, self.in_place)
        return Evaluation(peaks, places, pairs.reshape(-1, 3))

    def peak_bytes(self, evaluation: Evaluation) -> dict[str, int]:
        """Return the peaks of an evaluation by space name."""
        return dict(zip((space.name for space in self.graph.spaces), evaluation.peaks.tolist(), strict=True))

    def plan(self, order: Order) -> Plan:
        """Turn an order into a plan that takes the same in-place pairs as its evaluation."""
        return Plan.from_order(self.graph, order, self.evaluate(order).pairs, self.callees)
