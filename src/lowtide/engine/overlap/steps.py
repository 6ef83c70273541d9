"""The steps of a plan, with what moving one of them takes into account."""

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

BEFORE, ITSELF, AFTER = range(3)
"""Where a step goes beside the one at its new place."""


@dataclass(slots=True, eq=False)
class Steps:
    """The steps of a plan with what moving one of them takes into account."""

    graph: Graph
    plan: Plan
    steps: Sequence[Step]
    seconds: list[float]
    """By op."""
    clock: list[float]
    """When each step is reached if nothing waits for a collective."""
    room: NDArray[np.int64]
    """Bytes that each step leaves free, by memory space; moves take of it."""
    transient: NDArray[np.int64]
    """Bytes that each op takes while it runs, by memory space."""
    is_apart: list[bool]
    """By op, whether it is a collective."""
    reads: list[list[BufferId]]
    changes: list[list[BufferId]]
    """By op, what it gives other contents."""
    touches: list[list[BufferId]]
    """By op, all that it reads or writes."""
    predecessors: list[list[OpId]]
    most: list[int]
    """Bytes that are allowed, by memory space."""

    @classmethod
    def of(cls, graph: Graph, plan: Plan, prices: Prices, allowed_bytes: Mapping[str, int]) -> "Steps":
        is_run = plan.kinds == StepKind.RUN
        beside = np.where(graph.ranks > 1, 0.0, prices.seconds)
        busy = np.where(is_run, beside[np.where(is_run, plan.targets, 0)], 0.0)
        reads = list(graph.reads)
        changes = [mutates + writes for mutates, writes in zip(graph.mutates, graph.writes, strict=True)]
        most = np.asarray([allowed_bytes[space.name] for space in graph.spaces], np.int64)
        return cls(
            graph=graph,
            plan=plan,
            steps=list(plan.steps()),
            seconds=prices.seconds.tolist(),
            clock=[0.0, *np.cumsum(busy)[:-1].tolist()],
            room=most - simulate(graph, plan).live[1:],
            transient=transient_bytes(graph, callee_peaks(graph, plan.callees)),
            is_apart=(graph.ranks > 1).tolist(),
            reads=reads,
            changes=changes,
            touches=[sorted({*read, *changed}) for read, changed in zip(reads, changes, strict=True)],
            predecessors=list(graph.structure.predecessors),
            most=most.tolist(),
        )

    def buffers_of(self, step: Step) -> Sequence[BufferId]:
        """Return what a step reads, writes or frees."""
        return self.touches[step.op] if isinstance(step, Run) else (step.buffer,)

    def changed_by(self, step: Step) -> Sequence[BufferId]:
        """Return what a step gives other contents, hands on to an in-place result, or frees."""
        if not isinstance(step, Run):
            return (step.buffer,)
        changed = self.changes[step.op]
        return [*changed, *(read for read, _ in step.pairs)] if step.pairs else changed

    def moved(self, places: Mapping[StepIndex, tuple[StepIndex, int]]) -> Plan:
        """Return the plan with some steps before or after others; those at one place keep their order."""
        where = np.arange(len(self.steps))
        side = np.full(len(self.steps), ITSELF)
        for step, (place, beside) in places.items():
            where[step], side[step] = place, beside
        return self.in_order(np.lexsort((side, where)))

    def in_order(self, order: NDArray[np.int64]) -> Plan:
        """Return the plan with its steps in another order."""
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
