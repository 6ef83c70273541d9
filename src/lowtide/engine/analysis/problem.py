"""The problem of ordering a graph."""

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
    """The memory of an order."""

    peaks: NDArray[np.int64]
    peak_places: NDArray[np.int32]
    """First position at the peak, -1 for the inputs."""
    pairs: NDArray[np.int32]
    """Rows of (op, read buffer, written buffer)."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph to order, with plans for its callees."""

    graph: Graph
    callees: Mapping[str, Plan] = field(default_factory=dict[str, Plan])
    """Plans that count with their claimed `peak_bytes`."""
    in_place: bool = True
    callee_peaks: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    """Peaks that replace those of plans."""

    @cached_property
    def transient(self) -> NDArray[np.int64]:
        """Bytes needed only while ops run, shape (ops, spaces)."""
        claimed = {name: plan.peak_bytes for name, plan in self.callees.items() if plan.peak_bytes}
        unclaimed = {name: plan for name, plan in self.callees.items() if name not in claimed}
        return transient_bytes(self.graph, callee_peaks(self.graph, unclaimed, {**claimed, **self.callee_peaks}))

    @cached_property
    def native(self) -> _native.GraphView:
        """The graph for native kernels."""
        graph = self.graph
        return _native.GraphView(graph, graph.structure, np.ravel(self.transient), len(graph.spaces))

    def given_order(self) -> Order:
        """Return the program order."""
        return np.arange(self.graph.n_ops, dtype=np.int32)

    def evaluate(self, order: Order) -> Evaluation:
        """Return an order's peaks with frees at last use. O(n + e), native."""
        peaks, places, pairs = _native.evaluate(self.native, order, self.in_place)
        return Evaluation(peaks, places, pairs.reshape(-1, 3))

    def peak_bytes(self, evaluation: Evaluation) -> dict[str, int]:
        """Return an evaluation's peaks by space name."""
        return dict(zip((space.name for space in self.graph.spaces), evaluation.peaks.tolist(), strict=True))

    def plan(self, order: Order) -> Plan:
        """Return an order's plan with its evaluation's in-place pairs."""
        return Plan.from_order(self.graph, order, self.evaluate(order).pairs, self.callees)
