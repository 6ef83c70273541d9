"""What is live at the peak of a plan, since when and until when, and by how much it exceeds the device's memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.core.index_spaces import BufferId, SpaceId, StepIndex
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind

_INSTANT = 1e-9


@dataclass(frozen=True, slots=True)
class LiveBuffer:
    """A buffer at the peak; times in seconds."""

    buffer: BufferId
    allocated_at: float
    freed_at: float


@dataclass(frozen=True, slots=True)
class Pressure:
    """The peak of one memory space against its capacity; times in seconds."""

    excess_bytes: int
    peak_at: float
    live: Sequence[LiveBuffer]
    ends: Sequence[float]
    """When every op is done, for the last time where it reruns. What runs at the peak or later ends after `peak_at`."""


def pressure_of(graph: Graph, plan: Plan, space: SpaceId, capacity_bytes: int) -> Pressure:
    """Return the pressure of a plan, by a clock on which only runs take time. O(steps + e).

    Persistent buffers count against the capacity. Live buffers are listed in the order of their allocation.
    """
    footprint = simulate(graph, plan)
    name = graph.spaces[space].name
    step = max(footprint.peak_steps[name], 0)
    runs = plan.kinds == StepKind.RUN
    seconds = np.zeros(plan.n_steps + 1)
    seconds[1:][runs] = graph.cost[plan.targets[runs]]
    starts: list[float] = np.cumsum(seconds).tolist()
    ends = [0.0] * graph.n_ops
    for run in np.flatnonzero(runs).tolist():
        ends[plan.targets[run]] = starts[run + 1] + (_INSTANT if run >= step else 0.0)
    ranges = footprint.ranges
    rows = (ranges.spaces == space) & (ranges.first_steps <= step) & (ranges.last_steps > step)
    buffers: list[BufferId] = ranges.buffers[rows].tolist()
    firsts: list[StepIndex] = ranges.first_steps[rows].tolist()
    lasts: list[StepIndex] = ranges.last_steps[rows].tolist()
    live = [LiveBuffer(b, starts[first], starts[last]) for b, first, last in zip(buffers, firsts, lasts, strict=True)]
    excess = graph.persistent_bytes()[name] + footprint.peak_bytes[name] - capacity_bytes
    return Pressure(excess, starts[step], live, ends)
