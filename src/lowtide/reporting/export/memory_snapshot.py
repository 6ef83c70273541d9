"""Export as a PyTorch memory snapshot."""

import pickle
from typing import Any

from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.timeline import play_timeline
from lowtide.reporting.export.placed import Placed, with_addresses

_BASE = 0x7F00_0000_0000
"""Snapshots have process addresses."""
_DISTANCE = 2**44
_MICROSECONDS = 1e6


def memory_snapshot(graph: Graph, plan: Plan, prices: Prices) -> bytes:
    """Return a pickled snapshot with a device per memory space and an allocation per residency and scratch.

    Its peak is the plan's, without persistent buffers. Frames name op and buffer. Times are those of the timeline.
    """
    plan = with_addresses(graph, plan)
    timeline = play_timeline(graph, plan, prices)
    times = [0, *(round(start * _MICROSECONDS) for start in timeline.starts.tolist()), round(timeline.seconds * 1e6)]
    traces: list[list[dict[str, Any]]] = []
    segments: list[dict[str, Any]] = []
    for space in range(len(graph.spaces)):
        placed = Placed.of(graph, plan, space)
        base = _BASE + space * _DISTANCE
        trace, left = _trace(placed, base, times, plan.n_steps)
        traces.append(trace)
        if placed.reserved_bytes:
            segments.append(_segment(placed, base, space, left))
    return pickle.dumps({"segments": segments, "device_traces": traces, "allocator_settings": {}}, protocol=4)


def _trace(placed: Placed, base: int, times: list[int], n_steps: int) -> tuple[list[dict[str, Any]], list[int]]:
    """Return a device's events, and the rows still allocated at the end."""
    if not placed.reserved_bytes:
        return [], []
    trace = [_event("segment_alloc", base, placed.reserved_bytes, [], 0)]
    left: list[int] = []
    for step, begins, row in placed.events():
        where, size = base + int(placed.offsets[row]), int(placed.sizes[row])
        frames, time = _frames(placed, row), times[min(step, n_steps) + 1]
        if begins:
            trace.append(_event("alloc", where, size, frames, time))
        elif step >= n_steps:
            left.append(row)
        else:
            trace += [_event(action, where, size, frames, time) for action in ("free_requested", "free_completed")]
    return trace, left


def _event(action: str, where: int, size: int, frames: list[dict[str, Any]], time: int) -> dict[str, Any]:
    return {"action": action, "addr": where, "size": size, "stream": 0, "frames": frames, "time_us": time}


def _frames(placed: Placed, row: int) -> list[dict[str, Any]]:
    return [{"name": placed.ops[row] or "input", "filename": placed.names[row], "line": 0}]


def _segment(placed: Placed, base: int, device: int, left: list[int]) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    end = 0

    def add(until: int, state: str, frames: list[dict[str, Any]]) -> None:
        nonlocal end
        size = until - end
        if size:
            requested = size if state == "active_allocated" else 0
            block = {"address": base + end, "size": size, "requested_size": requested, "state": state, "frames": frames}
            blocks.append(block)
        end = until

    for row in sorted(left, key=lambda each: int(placed.offsets[each])):
        add(int(placed.offsets[row]), "inactive", [])
        add(int(placed.offsets[row] + placed.sizes[row]), "active_allocated", _frames(placed, row))
    add(placed.reserved_bytes, "inactive", [])
    active = sum(int(placed.sizes[row]) for row in left)
    return {
        "device": device,
        "address": base,
        "total_size": placed.reserved_bytes,
        "allocated_size": active,
        "active_size": active,
        "requested_size": active,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }
