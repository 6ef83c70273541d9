"""Export as a trace for Perfetto and Chrome."""

from typing import Any

import msgspec
import numpy as np

from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.timeline import play_timeline
from lowtide.reporting.export.placed import Placed, with_addresses

_MICROSECONDS = 1e6
_MOST_LIVES = 5_000
"""Most buffers shown, the largest by bytes times steps."""


def chrome_trace(graph: Graph, plan: Plan, prices: Prices) -> bytes:
    """Return a trace with a thread per stream and, per memory space, live bytes and buffers."""
    plan = with_addresses(graph, plan)
    timeline = play_timeline(graph, plan, prices, collectives_apart=True)
    starts = [round(start * _MICROSECONDS, 3) for start in timeline.starts.tolist()]
    lengths = [round(length * _MICROSECONDS, 3) for length in timeline.durations.tolist()]
    end = round(timeline.seconds * _MICROSECONDS, 3)
    events: list[dict[str, Any]] = [_named("process_name", 0, 0, f"{graph.name}: streams")]
    events += [_named("thread_name", 0, number, name) for number, name in enumerate(timeline.streams)]
    names = {StepKind.RUN: graph.op_names}
    for step, (kind, target, stream) in enumerate(
        zip(plan.kinds.tolist(), plan.targets.tolist(), timeline.step_streams.tolist(), strict=True)
    ):
        if stream >= 0:
            name = names.get(kind, graph.buffer_names)[target]
            events.append({"ph": "X", "pid": 0, "tid": stream, "ts": starts[step], "dur": lengths[step], "name": name})
    live = simulate(graph, plan).live
    for space, where in enumerate(graph.spaces):
        pid = space + 1
        events.append(_named("process_name", pid, 0, f"memory of {where.name}"))
        events += [
            {"ph": "C", "pid": pid, "ts": time, "name": "live bytes", "args": {"bytes": count}}
            for time, count in zip([0.0, *starts], live[:, space].tolist(), strict=True)
        ]
        events += _lives(Placed.of(graph, plan, space), pid, [0.0, *starts, end])
    return msgspec.json.encode({"displayTimeUnit": "ms", "traceEvents": events})


def _lives(placed: Placed, pid: int, times: list[float]) -> list[dict[str, Any]]:
    area = placed.sizes.astype(np.float64) * (placed.last - placed.first)
    events: list[dict[str, Any]] = []
    for row in np.sort(np.argsort(-area, kind="stable")[:_MOST_LIVES]).tolist():
        shared: dict[str, Any] = {"cat": "buffer", "id": row, "pid": pid, "tid": 0, "name": placed.names[row]}
        about: dict[str, Any] = {
            "bytes": int(placed.sizes[row]),
            "offset": int(placed.offsets[row]),
            "op": placed.ops[row],
        }
        events.append({"ph": "b", "ts": times[int(placed.first[row]) + 1], "args": about, **shared})
        events.append({"ph": "e", "ts": times[int(placed.last[row]) + 1], **shared})
    return events


def _named(event: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": event, "args": {"name": name}}
