"""Grappler's own estimate of a peak: what is live when ops run one after the other, by its clock."""

from collections.abc import Sequence
from heapq import heappop, heappush

from lowtide.core.index_spaces import BufferId, SpaceId
from lowtide.engine.graph import Graph
from lowtide.frameworks.tensorflow.grappler.pressure import LiveBuffer, Pressure

_NANOSECOND = 1e-9


def virtual_order(names: Sequence[str], inputs: Sequence[Sequence[int]], nanoseconds: Sequence[int]) -> list[int]:
    """Return nodes in the order in which Grappler's virtual cluster runs them on one device. O((n + e) log n).

    The node whose inputs are ready first runs next; names break ties. A cycle is left out.
    """
    readers: list[list[int]] = [[] for _ in names]
    left = [len(set(each)) for each in inputs]
    for node, sources in enumerate(inputs):
        for source in set(sources):
            readers[source].append(node)
    ready_at = [0] * len(names)
    ready: list[tuple[int, str, int]] = [(0, names[node], node) for node, count in enumerate(left) if not count]
    ready.sort()
    order: list[int] = []
    now = 0
    while ready:
        when, _, node = heappop(ready)
        now = max(now, when) + max(1, nanoseconds[node])
        order.append(node)
        for reader in readers[node]:
            ready_at[reader] = max(ready_at[reader], now)
            left[reader] -= 1
            if not left[reader]:
                heappush(ready, (ready_at[reader], names[reader], reader))
    return order


def estimated_pressure(graph: Graph, space: SpaceId, capacity_bytes: int) -> Pressure:
    """Return the peak of the program as it stands as Grappler estimates it, against a capacity.

    It counts in whole microseconds. A value is live from when its op starts until a nanosecond after its last reader is
    done, so that it is counted with what the next op allocates; nothing outlives its last reader. Persistent buffers
    count like all others, from the op that names them. Source: graph_memory.cc of TensorFlow. O((n + e) log n).
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
    """Return when every op starts and ends, in microseconds."""
    starts: list[int] = []
    ends: list[int] = []
    now = 0
    costs: list[float] = graph.cost.tolist()
    for cost in costs:
        duration = max(1, round(cost * 1e9))
        starts.append(now // 1000)
        ends.append(now // 1000 + duration // 1000)
        now += duration
    return starts, ends
