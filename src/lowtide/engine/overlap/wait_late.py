"""Postpone steps that would wait for a collective."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lowtide.core.index_spaces import BufferId, OpId, StepIndex
from lowtide.engine.graph.execution import counted_sizes
from lowtide.engine.overlap.steps import Steps
from lowtide.engine.plan import Plan, Run

_HOME = 0


def wait_late(steps: Steps) -> Plan:
    """Return the plan with steps that would wait for a collective behind later ones that need not wait.

    Ordered ops keep their order: waiting steps run before them, or when too much of the first memory space is needed.
    O(accesses), and the steps that wait at once.
    """
    return steps.in_order(np.fromiter(_LateWalk(steps).order(), np.int64, len(steps.steps)))


@dataclass(slots=True, eq=False)
class _Waiting:
    steps: deque[tuple[StepIndex, float]] = field(default_factory=deque[tuple[StepIndex, float]])
    touched: Counter[BufferId] = field(default_factory=Counter[BufferId])
    changed: Counter[BufferId] = field(default_factory=Counter[BufferId])
    ops: Counter[OpId] = field(default_factory=Counter[OpId])


class _LateWalk:
    def __init__(self, steps: Steps) -> None:
        self._plan, graph = steps, steps.graph
        self._allowed = steps.allowed[_HOME]
        self._needed, self._left = _bytes_by_step(steps)
        self._held = int(graph.sizes[graph.counted_at_start & (graph.buffer_spaces == _HOME)].sum())
        self._waiting = _Waiting()
        self._now = 0.0
        self._streams: dict[str, float] = {}
        self._ready: dict[BufferId, float] = {}
        self._in_use: dict[BufferId, float] = {}

    def order(self) -> Iterator[StepIndex]:
        waiting = self._waiting.steps
        for step in range(len(self._plan.steps)):
            while waiting and waiting[0][1] <= self._now:
                yield self._pop_waiting()
            until = self._ready_time(step)
            if (self._must_follow_waiting(step) or until > self._now) and self._may_wait(step):
                self._postpone(step, until)
                continue
            if waiting and (self._must_follow_waiting(step) or not self._has_room(step)):
                while waiting:
                    yield self._pop_waiting()
            self._run(step)
            yield step
        while waiting:
            yield self._pop_waiting()

    def _ready_time(self, step: StepIndex) -> float:
        this = self._plan.steps[step]
        if not isinstance(this, Run):
            return self._in_use.get(this.buffer, 0.0)
        ready = (self._ready.get(buffer, 0.0) for buffer in self._plan.reads[this.op])
        return max((*ready, *(self._in_use.get(buffer, 0.0) for buffer in self._plan.changes[this.op])), default=0.0)

    def _must_follow_waiting(self, step: StepIndex) -> bool:
        waiting, this = self._waiting, self._plan.steps[step]
        if not waiting.steps:
            return False
        return (
            any(waiting.changed[buffer] for buffer in self._plan.buffers_of(this))
            or any(waiting.touched[buffer] for buffer in self._plan.changed_by(this))
            or (isinstance(this, Run) and any(waiting.ops[op] for op in self._plan.predecessors[this.op]))
        )

    def _may_wait(self, step: StepIndex) -> bool:
        this = self._plan.steps[step]
        if isinstance(this, Run) and (self._plan.streams[this.op] or self._plan.graph.ordered[this.op]):
            return False
        return self._held + self._peak_of_waiting((step,)) <= self._allowed

    def _has_room(self, step: StepIndex) -> bool:
        after = self._held + self._left[step]
        return self._held + self._needed[step] <= self._allowed and after + self._peak_of_waiting(()) <= self._allowed

    def _peak_of_waiting(self, more: tuple[StepIndex, ...]) -> int:
        held = most = 0
        for step in (*(step for step, _ in self._waiting.steps), *more):
            most = max(most, held + self._needed[step])
            held += self._left[step]
        return most

    def _postpone(self, step: StepIndex, until: float) -> None:
        waiting, this = self._waiting, self._plan.steps[step]
        waiting.steps.append((step, until))
        waiting.touched.update(self._plan.buffers_of(this))
        waiting.changed.update(self._plan.changed_by(this))
        if isinstance(this, Run):
            waiting.ops[this.op] += 1

    def _pop_waiting(self) -> StepIndex:
        waiting = self._waiting
        step, _ = waiting.steps.popleft()
        this = self._plan.steps[step]
        waiting.touched.subtract(self._plan.buffers_of(this))
        waiting.changed.subtract(self._plan.changed_by(this))
        if isinstance(this, Run):
            waiting.ops[this.op] -= 1
        self._run(step)
        return step

    def _run(self, step: StepIndex) -> None:
        plan, this = self._plan, self._plan.steps[step]
        self._held += self._left[step]
        stream = plan.streams[this.op] if isinstance(this, Run) else None
        if isinstance(this, Run) and stream is not None:
            free_at = self._streams.get(stream, 0.0)
            end = self._streams[stream] = max(free_at, self._now, self._ready_time(step)) + plan.seconds[this.op]
            self._in_use.update(dict.fromkeys(plan.touches[this.op], end))
            self._ready.update(dict.fromkeys(plan.changes[this.op], end))
            return
        self._now = max(self._now, self._ready_time(step)) + (plan.seconds[this.op] if isinstance(this, Run) else 0.0)


def _bytes_by_step(plan: Steps) -> tuple[list[int], list[int]]:
    graph = plan.graph
    sizes: list[int] = counted_sizes(graph, _HOME).tolist()
    scratch: list[int] = plan.transient[:, _HOME].tolist()
    allocates: list[list[BufferId]] = list(graph.structure.allocates)
    resident: set[BufferId] = set()
    needed: list[int] = []
    left: list[int] = []
    for step in plan.steps:
        if not isinstance(step, Run):
            needed.append(0)
            left.append(-sizes[step.buffer])
            resident.discard(step.buffer)
            continue
        made = sum(sizes[buffer] for buffer in allocates[step.op])
        replaced = sum(sizes[buffer] for buffer in allocates[step.op] if buffer in resident)
        taken = sum(sizes[read] for read, _ in step.pairs)
        resident.update(allocates[step.op])
        resident.difference_update(read for read, _ in step.pairs)
        needed.append(made - taken + scratch[step.op])
        left.append(made - taken - replaced)
    return needed, left
