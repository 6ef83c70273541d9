"""Moves collectives, and the frees that wait for them, so that computation goes on meanwhile."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lowtide.core.index_spaces import BufferId, OpId, StepIndex
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.overlap.steps import AFTER, BEFORE, Steps
from lowtide.engine.overlap.wait_late import wait_late
from lowtide.engine.plan import Plan, Run, StepKind
from lowtide.engine.timeline import play_timeline


def hide_collectives(graph: Graph, plan: Plan, prices: Prices, allowed_bytes: Mapping[str, int]) -> Plan:
    """Return a plan whose collectives keep computation waiting less, or the plan itself.

    A collective starts as late as it still ends in time for whoever needs it, or as soon after that as its bytes are
    free. What it reads is freed once it is done, or as soon before that as its bytes are needed; what would wait for it
    comes behind what need not (`wait_late`). Ordered ops keep their order, collectives among them, so all ranks go on
    agreeing. No memory space needs more than is allowed. Plans with copies stay as they are. Source: the placement of
    prefetches of this project's offload search. Complexity: O(steps + e), and what the moved steps move over.
    Guarantee: never slower on the timeline with collectives apart, never above `allowed_bytes`.
    """
    copies = ~np.isin(plan.kinds, (StepKind.RUN, StepKind.FREE))
    if copies.any() or not (graph.ranks > 1).any():
        return plan
    best, seconds = plan, _seconds(graph, plan, prices)
    for move in (_start_early, _free_late, wait_late):
        moved = move(Steps.of(graph, best, prices, allowed_bytes))
        moved = replace(moved, peak_bytes=simulate(graph, moved).peak_bytes)
        is_allowed = all(moved.peak_bytes[space] <= most for space, most in allowed_bytes.items())
        took = _seconds(graph, moved, prices)
        if is_allowed and took < seconds:
            best, seconds = moved, took
    return best


def _seconds(graph: Graph, plan: Plan, prices: Prices) -> float:
    return play_timeline(graph, plan, prices, collectives_apart=True).seconds


def _start_early(plan: Steps) -> Plan:
    """Start every collective as late as it still ends in time, in so far as its results find room until then."""
    graph = plan.graph
    wanted = _latest_starts(plan)
    touched: dict[BufferId, StepIndex] = {}
    changed: dict[BufferId, StepIndex] = {}
    ran: dict[OpId, StepIndex] = {}
    places: dict[StepIndex, tuple[StepIndex, int]] = {}
    earliest = 0  # where ordered ops so far leave off
    for step, this in enumerate(plan.steps):
        stands = step
        if isinstance(this, Run):
            if step in wanted and not this.pairs:
                after = [touched.get(buffer, -1) for buffer in plan.changes[this.op]]
                after += [changed.get(buffer, -1) for buffer in plan.reads[this.op]]
                after += [ran.get(op, -1) for op in graph.structure.predecessors[this.op].tolist()]
                first = max(earliest, 1 + max(after, default=-1), bisect_right(plan.clock, wanted[step]) - 1)
                place = _with_room(plan, this, min(first, step), step)
                if place < step:
                    places[step] = (place, BEFORE)
                    stands = place - 1
            if graph.ordered[this.op]:
                earliest = stands + 1
            ran[this.op] = stands
        buffers = plan.buffers_of(this)
        touched.update({buffer: max(stands, touched.get(buffer, -1)) for buffer in buffers})
        changed.update(dict.fromkeys(plan.changes[this.op] if isinstance(this, Run) else buffers, stands))
    return plan.moved(places)


def _latest_starts(plan: Steps) -> dict[StepIndex, float]:
    """Return, by step, when each collective must start so that nobody waits for it, one after the other."""
    needed_at: dict[BufferId, float] = {}
    wanted: dict[StepIndex, float] = {}
    before = plan.clock[-1]
    for step in range(len(plan.steps) - 1, -1, -1):
        this = plan.steps[step]
        if isinstance(this, Run) and plan.is_apart[this.op]:
            needed = (needed_at.get(buffer, before) for buffer in plan.changes[this.op])
            before = wanted[step] = min([before, *needed]) - plan.seconds[this.op]
        needed_at.update(dict.fromkeys(plan.buffers_of(this), plan.clock[step]))
    return wanted


def _with_room(plan: Steps, run: Run, place: StepIndex, step: StepIndex) -> StepIndex:
    """Return the first place from one on where the results of a run fit until its own step, and take that room."""
    graph, room = plan.graph, plan.room
    made = np.zeros(room.shape[1], np.int64)
    np.add.at(made, graph.buffer_spaces[graph.writes[run.op]], graph.sizes[graph.writes[run.op]])
    short = np.flatnonzero((room[place:step] < made).any(axis=1))
    place += int(short[-1]) + 1 if len(short) else 0
    with_scratch = made + plan.transient[run.op]
    while place < step and (room[place] < with_scratch).any():
        place += 1
    room[place:step] -= made
    return place


def _free_late(plan: Steps) -> Plan:
    """Free what a collective reads once that is done, in so far as there is room."""
    graph = plan.graph
    done: dict[BufferId, float] = {}
    places: dict[StepIndex, tuple[StepIndex, int]] = {}
    next_touch = _next_touches(plan)
    stream = 0.0
    for step, this in enumerate(plan.steps):
        if isinstance(this, Run):
            if plan.is_apart[this.op]:
                stream = max(stream, plan.clock[step]) + plan.seconds[this.op]
                done.update(dict.fromkeys(plan.buffers_of(this), stream))
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
    """Return, by step, when a buffer that the step frees is touched again; the number of steps where it is not."""
    coming: dict[BufferId, StepIndex] = {}
    found = [len(plan.steps)] * len(plan.steps)
    for step in range(len(plan.steps) - 1, -1, -1):
        buffers = plan.buffers_of(plan.steps[step])
        if not isinstance(plan.steps[step], Run):
            found[step] = coming.get(buffers[0], len(plan.steps))
        for buffer in buffers:
            coming[buffer] = step
    return found
