"""Peaks of plans, and Grappler's estimates."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

import numpy as np

from lowtide.core.index_spaces import BufferId, SpaceId, StepIndex
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind

_NANOSECOND = 1e-9


@dataclass(frozen=True, slots=True)
class LiveBuffer:
    """A buffer alive at the peak; times in seconds."""

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
    """The last end of each op. Ops at the peak or later end after `peak_at`."""


def pressure_of(graph: Graph, plan: Plan, space: SpaceId, capacity_bytes: int) -> Pressure:
    """Return a plan's pressure, with persistent buffers, by a clock on which only runs take time. O(steps + e)."""
    footprint = simulate(graph, plan)
    name = graph.spaces[space].name
    step = max(footprint.peak_steps[name], 0)
    runs = plan.kinds == StepKind.RUN
    seconds = np.zeros(plan.n_steps + 1)
    seconds[1:][runs] = graph.cost[plan.targets[runs]]
    starts: list[float] = np.cumsum(seconds).tolist()
    ends = [0.0] * graph.n_ops
    for run in np.flatnonzero(runs).tolist():
        ends[plan.targets[run]] = starts[run + 1] + (_NANOSECOND if run >= step else 0.0)
    ranges = footprint.ranges
    rows = (ranges.spaces == space) & (ranges.first_steps <= step) & (ranges.last_steps > step)
    buffers: list[BufferId] = ranges.buffers[rows].tolist()
    firsts: list[StepIndex] = ranges.first_steps[rows].tolist()
    lasts: list[StepIndex] = ranges.last_steps[rows].tolist()
    live = [LiveBuffer(b, starts[first], starts[last]) for b, first, last in zip(buffers, firsts, lasts, strict=True)]
    excess = graph.persistent_bytes()[name] + footprint.peak_bytes[name] - capacity_bytes
    return Pressure(excess, starts[step], live, ends)


def virtual_order(names: Sequence[str], inputs: Sequence[Sequence[int]], nanoseconds: Sequence[int]) -> list[int]:
    """Return nodes in the order of Grappler's virtual cluster on one device. O((n + e) log n).

    Names break ties. Nodes on a cycle are left out.
    """
    sorter = TopologicalSorter[int](dict.fromkeys(range(len(names)), ()))
    for node, sources in enumerate(inputs):
        sorter.add(node, *set(sources))
    with suppress(CycleError):
        sorter.prepare()
    ready = sorted((0, names[node], node) for node in sorter.get_ready())
    order: list[int] = []
    now = 0
    while ready:
        when, _, node = heappop(ready)
        now = max(now, when) + max(1, nanoseconds[node])
        order.append(node)
        sorter.done(node)
        for reader in sorter.get_ready():
            heappush(ready, (now, names[reader], reader))
    return order


def estimated_pressure(graph: Graph, space: SpaceId, capacity_bytes: int) -> Pressure:
    """Return Grappler's estimate of the baseline's peak, against a capacity. O((n + e) log n).

    Times are whole microseconds. Persistent buffers count from the op that names them. Source: graph_memory.cc.
    """
    start_us, end_us = _clock(graph)
    first: dict[BufferId, int] = {}
    last: dict[BufferId, int] = {}
    for op in range(graph.n_ops):
        for buffer in (*graph.reads[op].tolist(), *graph.mutates[op].tolist()):
            last[buffer] = max(last.get(buffer, 0), end_us[op])
        for buffer in graph.writes[op].tolist():
            first.setdefault(buffer, start_us[op])
            last[buffer] = max(last.get(buffer, 0), end_us[op])
    counted = [buffer for buffer in first if graph.buffer_spaces[buffer] == space and graph.sizes[buffer]]
    events = sorted(
        [(first[buffer] * 1000, 0, buffer) for buffer in counted]
        + [(last[buffer] * 1000 + 1, 1, buffer) for buffer in counted]
    )
    live: dict[BufferId, None] = {}
    held = peak = 0
    at_peak: list[BufferId] = []
    for _, is_end, buffer in events:
        if is_end:
            del live[buffer]
            held -= int(graph.sizes[buffer])
            continue
        live[buffer] = None
        held += int(graph.sizes[buffer])
        if held > peak:
            peak, at_peak = held, list(live)
    ranges = [LiveBuffer(buffer, first[buffer] * 1e-6, last[buffer] * 1e-6 + _NANOSECOND) for buffer in at_peak]
    return Pressure(
        excess_bytes=peak - capacity_bytes,
        peak_at=max((each.allocated_at for each in ranges), default=0.0),
        live=ranges,
        ends=[end * 1e-6 + _NANOSECOND for end in end_us],
    )


def _clock(graph: Graph) -> tuple[list[int], list[int]]:
    nanoseconds = np.maximum(1, np.rint(graph.cost * 1e9)).astype(np.int64)
    starts = (np.cumsum(nanoseconds) - nanoseconds) // 1000
    return starts.tolist(), (starts + nanoseconds // 1000).tolist()
