"""Move collectives and ops off the device so that computation hides them."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lowtide.core.index_spaces import BufferId, OpId, StepIndex
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.costs import Prices
from lowtide.engine.graph import PARAMETER_TO_DEVICE, Graph
from lowtide.engine.overlap.steps import AFTER, BEFORE, Steps
from lowtide.engine.overlap.wait_late import wait_late
from lowtide.engine.plan import Plan, Run, StepKind
from lowtide.engine.timeline import play_timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Seconds of a plan's collectives, 0 without any."""

    seconds: float = 0.0
    """Time of all collectives, recomputed ones included."""
    exposed_seconds: float = 0.0
    """Time that computation waits for them."""


def communication_of(graph: Graph, plan: Plan, prices: Prices) -> Communication:
    """Return the time of a plan's collectives on their own stream. O(steps + e)."""
    if not (graph.ranks > 1).any():
        return Communication()
    timeline = play_timeline(graph, plan, prices, collectives_apart=True)
    return Communication(seconds=timeline.collective_seconds, exposed_seconds=timeline.exposed_seconds)


def hide_collectives(graph: Graph, plan: Plan, prices: Prices, allowed_bytes: Mapping[str, int]) -> Plan:
    """Return a plan that waits less for its collectives and ops off the device, or the plan itself.

    Ordered ops keep their order, so that all ranks agree. Plans with copies of their own are unchanged. O(steps + e),
    and the steps moved over. Never slower on the timeline, never above `allowed_bytes`.
    """
    copies = ~np.isin(plan.kinds, (StepKind.RUN, StepKind.FREE))
    if copies.any() or not ((graph.ranks > 1).any() or graph.off_device.any()):
        return plan
    found = [_moved(graph, plan, prices, allowed_bytes)]
    returning = returning_ops(graph)
    if returning:
        late = return_late(Steps.of(graph, plan, prices, allowed_bytes), returning)
        late = replace(late, peak_bytes=simulate(graph, late).peak_bytes)
        found.append(_moved(graph, late, prices, allowed_bytes, stay=returning))
    fits = [each for each in found if each is plan or _is_allowed(each, allowed_bytes)]
    return min(fits, key=lambda each: _seconds(graph, each, prices), default=plan)


def _moved(
    graph: Graph,
    plan: Plan,
    prices: Prices,
    allowed_bytes: Mapping[str, int],
    stay: Collection[OpId] = (),
) -> Plan:
    best, seconds = plan, _seconds(graph, plan, prices)
    for move in (partial(_start_early, stay=stay), _free_late, wait_late):
        moved = move(Steps.of(graph, best, prices, allowed_bytes))
        moved = replace(moved, peak_bytes=simulate(graph, moved).peak_bytes)
        took = _seconds(graph, moved, prices)
        if _is_allowed(moved, allowed_bytes) and took < seconds:
            best, seconds = moved, took
    return best


def _is_allowed(plan: Plan, allowed_bytes: Mapping[str, int]) -> bool:
    return all(plan.peak_bytes[space] <= most for space, most in allowed_bytes.items())


def _seconds(graph: Graph, plan: Plan, prices: Prices) -> float:
    return play_timeline(graph, plan, prices, collectives_apart=True).seconds


def _start_early(plan: Steps, stay: Collection[OpId] = ()) -> Plan:
    graph = plan.graph
    latest = _latest_starts(plan)
    touched: dict[BufferId, StepIndex] = {}
    changed: dict[BufferId, StepIndex] = {}
    ran: dict[OpId, StepIndex] = {}
    places: dict[StepIndex, tuple[StepIndex, int]] = {}
    earliest = 0  # first place after the ordered ops before
    for step, this in enumerate(plan.steps):
        position = step
        if isinstance(this, Run):
            if step in latest and not this.pairs and this.op not in stay:
                after = [touched.get(buffer, -1) for buffer in plan.changes[this.op]]
                after += [changed.get(buffer, -1) for buffer in plan.reads[this.op]]
                after += [ran.get(op, -1) for op in graph.structure.predecessors[this.op].tolist()]
                if graph.ordered[this.op] or graph.ranks[this.op] > 1:
                    after.append(earliest - 1)
                first = max(1 + max(after, default=-1), bisect_right(plan.clock, latest[step]) - 1)
                place = _with_room(plan, this, min(first, step), step)
                places[step] = (place, BEFORE)  # also at its own place, behind which later ones may start
                position = place - 1 if place < step else step
            if graph.ordered[this.op]:
                earliest = position + 1
            ran[this.op] = position
        buffers = plan.buffers_of(this)
        touched.update({buffer: max(position, touched.get(buffer, -1)) for buffer in buffers})
        changed.update(dict.fromkeys(plan.changes[this.op] if isinstance(this, Run) else buffers, position))
    return plan.moved(places)


def _latest_starts(plan: Steps) -> dict[StepIndex, float]:
    needed_at: dict[BufferId, float] = {}
    latest: dict[StepIndex, float] = {}
    before: dict[str, float] = {}
    for step in range(len(plan.steps) - 1, -1, -1):
        this = plan.steps[step]
        stream = plan.streams[this.op] if isinstance(this, Run) else None
        if isinstance(this, Run) and stream is not None:
            last = before.get(stream, plan.clock[-1])
            needed = (needed_at.get(buffer, last) for buffer in plan.changes[this.op])
            before[stream] = latest[step] = min([last, *needed]) - plan.seconds[this.op]
        needed_at.update(dict.fromkeys(plan.buffers_of(this), plan.clock[step]))
    return latest


def _with_room(plan: Steps, run: Run, place: StepIndex, step: StepIndex) -> StepIndex:
    graph, room = plan.graph, plan.room
    made = np.zeros(room.shape[1], np.int64)
    np.add.at(made, graph.buffer_spaces[graph.writes[run.op]], graph.sizes[graph.writes[run.op]])
    short = np.flatnonzero((room[place:step] < made).any(axis=1))
    place += int(short[-1]) + 1 if len(short) else 0
    with_scratch = made + plan.transient[run.op]
    while place < step and (not isinstance(plan.steps[place], Run) or (room[place] < with_scratch).any()):
        place += 1  # also behind frees, before which the room is less
    room[place:step] -= made
    return place


def _free_late(plan: Steps) -> Plan:
    graph = plan.graph
    done: dict[BufferId, float] = {}
    places: dict[StepIndex, tuple[StepIndex, int]] = {}
    next_touch = _next_touches(plan)
    free_at: dict[str, float] = {}
    for step, this in enumerate(plan.steps):
        if isinstance(this, Run):
            stream = plan.streams[this.op]
            if stream is not None:
                end = free_at[stream] = max(free_at.get(stream, 0.0), plan.clock[step]) + plan.seconds[this.op]
                done.update(dict.fromkeys(plan.buffers_of(this), end))
            continue
        end = done.pop(this.buffer, 0.0)
        if end <= plan.clock[step]:
            continue
        place = min(bisect_left(plan.clock, end), next_touch[step]) - 1
        space, size = int(graph.buffer_spaces[this.buffer]), int(graph.sizes[this.buffer])
        short = np.flatnonzero(plan.room[step + 1 : place + 1, space] < size)
        place = step + int(short[0]) if len(short) else place
        if place > step:
            plan.room[step + 1 : place + 1, space] -= size
            places[step] = (place, AFTER)
    return plan.moved(places)


def _next_touches(plan: Steps) -> list[StepIndex]:
    coming: dict[BufferId, StepIndex] = {}
    found = [len(plan.steps)] * len(plan.steps)
    for step in range(len(plan.steps) - 1, -1, -1):
        buffers = plan.buffers_of(plan.steps[step])
        if not isinstance(plan.steps[step], Run):
            found[step] = coming.get(buffers[0], len(plan.steps))
        for buffer in buffers:
            coming[buffer] = step
    return found


def returning_ops(graph: Graph) -> frozenset[OpId]:
    """Return the ops that copy updated parameters to the device."""
    kinds = enumerate(graph.op_kinds) if graph.updates_on_host.any() else ()
    return frozenset(op for op, kind in kinds if kind == PARAMETER_TO_DEVICE)


def return_late(plan: Steps, returning: Collection[OpId]) -> Plan:
    """Return the plan with its `returning` ops last, in the order of the updates, if no step needs them.

    A stream copies in step order, and such a copy waits for its update. O(accesses).
    """
    last = len(plan.steps) - 1
    used_later: set[BufferId] = set()
    freed: dict[BufferId, StepIndex] = {}
    places: dict[StepIndex, tuple[StepIndex, int]] = {}
    for step in range(last, -1, -1):
        this = plan.steps[step]
        buffers = plan.buffers_of(this)
        if not isinstance(this, Run):
            freed[this.buffer] = step
            continue
        if this.op in returning and used_later.isdisjoint(buffers):
            moved = [step, *(freed[buffer] for buffer in buffers if buffer in freed)]
            places.update(dict.fromkeys(moved, (last, AFTER)))
            continue
        used_later.update(buffers)
    return plan.moved(places) if places else plan.plan
