"""The simulator: live bytes at every step of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import StepIndex
from lowtide.engine.analysis.live_ranges import LiveRanges, live_ranges
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import transient_bytes
from lowtide.engine.plan import Plan, StepKind

_KnownPeaks = dict[tuple[int, int], dict[str, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """Live bytes over a plan, without persistent buffers."""

    spaces: tuple[str, ...]
    live: NDArray[np.int64]
    """Shape (steps + 1, spaces). Row 0 is before the first step; row s + 1 is step s before it frees."""
    ranges: LiveRanges

    @property
    def peak_bytes(self) -> dict[str, int]:
        return dict(zip(self.spaces, self.live.max(axis=0).tolist(), strict=True))

    @property
    def peak_steps(self) -> dict[str, StepIndex]:
        """First step at the peak, -1 before the first step."""
        return dict(zip(self.spaces, (self.live.argmax(axis=0) - 1).tolist(), strict=True))


def simulate(graph: Graph, plan: Plan) -> Footprint:
    """Return the live bytes at every step of a valid plan. O(steps + e).

    A callee counts with the peak of its plan, else of its program order.
    """
    return _simulate(graph, plan, {})


def _simulate(graph: Graph, plan: Plan, known: _KnownPeaks) -> Footprint:
    ranges = live_ranges(graph, plan)
    change = np.zeros((plan.n_steps + 1, len(graph.spaces)), np.int64)
    bytes_held = graph.sizes[ranges.buffers]
    np.add.at(change, (ranges.first_steps, ranges.spaces), bytes_held)
    np.subtract.at(change, (ranges.last_steps, ranges.spaces), bytes_held)
    live = np.empty_like(change)
    live[0] = list(graph.bytes_by_space(graph.counted_at_start).values())
    np.cumsum(change[:-1], axis=0, out=live[1:])
    runs = np.flatnonzero(plan.kinds == StepKind.RUN)
    live[runs + 1] += transient_bytes(graph, _callee_peaks(graph, plan.callees, {}, known))[plan.targets[runs]]
    return Footprint(tuple(space.name for space in graph.spaces), live, ranges)


def callee_peaks(
    graph: Graph, plans: Mapping[str, Plan], settled: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, Mapping[str, int]]:
    """Return every callee's peak: settled, or else of its plan."""
    return _callee_peaks(graph, plans, settled or {}, {})


def _callee_peaks(
    graph: Graph, plans: Mapping[str, Plan], settled: Mapping[str, Mapping[str, int]], known: _KnownPeaks
) -> dict[str, Mapping[str, int]]:
    peaks: dict[str, Mapping[str, int]] = dict(settled)
    for name in graph.called:
        if name not in peaks:
            callee, plan = graph.subgraphs[name], plans.get(name)
            key = (id(callee), id(plan))  # unique while both are alive
            if key not in known:
                known[key] = _simulate(callee, plan or Plan.baseline(callee), known).peak_bytes
            peaks[name] = known[key]
    return peaks
