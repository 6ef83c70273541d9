"""The steps of a plan, with times and memory to move them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId, StepIndex
from lowtide.engine.analysis.footprint import callee_peaks, simulate
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import transient_bytes
from lowtide.engine.plan import Plan, Run, Step, StepKind
from lowtide.engine.timeline import COLLECTIVES, off_device_ops

BEFORE, ITSELF, AFTER = range(3)
"""Where a moved step goes."""


@dataclass(slots=True, eq=False)
class Steps:
    graph: Graph
    plan: Plan
    steps: Sequence[Step]
    seconds: list[float]
    """By op."""
    clock: list[float]
    """Start of each step if none waits for a collective or a copy."""
    room: NDArray[np.int64]
    """Free bytes per step by memory space, reduced by moves."""
    transient: NDArray[np.int64]
    """Bytes while each op runs, by memory space."""
    streams: list[str | None]
    """By op; None for compute."""
    reads: list[list[BufferId]]
    changes: list[list[BufferId]]
    """By op, buffers written or mutated."""
    touches: list[list[BufferId]]
    predecessors: list[list[OpId]]
    allowed: list[int]

    @classmethod
    def of(cls, graph: Graph, plan: Plan, prices: Prices, allowed_bytes: Mapping[str, int]) -> "Steps":
        is_run = plan.kinds == StepKind.RUN
        copies = off_device_ops(graph)
        streams: list[str | None] = [COLLECTIVES if ranks > 1 else None for ranks in graph.ranks.tolist()]
        seconds = prices.seconds.copy()
        for op, copy in copies.items():
            streams[op], seconds[op] = copy.stream, copy.seconds
        compute_seconds = np.where([stream is not None for stream in streams], 0.0, seconds)
        busy = np.where(is_run, compute_seconds[np.where(is_run, plan.targets, 0)], 0.0)
        reads = list(graph.reads)
        changes = [mutates + writes for mutates, writes in zip(graph.mutates, graph.writes, strict=True)]
        allowed = np.asarray([allowed_bytes[space.name] for space in graph.spaces], np.int64)
        return cls(
            graph=graph,
            plan=plan,
            steps=list(plan.steps()),
            seconds=seconds.tolist(),
            clock=[0.0, *np.cumsum(busy)[:-1].tolist()],
            room=allowed - simulate(graph, plan).live[1:],
            transient=transient_bytes(graph, callee_peaks(graph, plan.callees)),
            streams=streams,
            reads=reads,
            changes=changes,
            touches=[sorted({*read, *changed}) for read, changed in zip(reads, changes, strict=True)],
            predecessors=list(graph.structure.predecessors),
            allowed=allowed.tolist(),
        )

    def buffers_of(self, step: Step) -> Sequence[BufferId]:
        return self.touches[step.op] if isinstance(step, Run) else (step.buffer,)

    def changed_by(self, step: Step) -> Sequence[BufferId]:
        """Return the buffers that a step writes, overwrites in place, or frees."""
        if not isinstance(step, Run):
            return (step.buffer,)
        changed = self.changes[step.op]
        return [*changed, *(read for read, _ in step.pairs)] if step.pairs else changed

    def moved(self, places: Mapping[StepIndex, tuple[StepIndex, int]]) -> Plan:
        where = np.arange(len(self.steps))
        side = np.full(len(self.steps), ITSELF)
        for step, (place, step_side) in places.items():
            where[step], side[step] = place, step_side
        return self.in_order(np.lexsort((side, where)))

    def in_order(self, order: NDArray[np.int64]) -> Plan:
        plan = self.plan
        return replace(
            plan,
            kinds=plan.kinds[order],
            targets=plan.targets[order],
            spaces=plan.spaces[order],
            pairs=plan.pairs.take(order.astype(np.int32)),
            addresses=(),
            arena_bytes={},
        )
