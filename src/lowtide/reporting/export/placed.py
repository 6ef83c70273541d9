"""The residencies of a plan with names and addresses."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.packing import pack_plan
from lowtide.engine.plan import Addresses, Plan, StepKind


def with_addresses(graph: Graph, plan: Plan, effort: EffortName = DEFAULT_EFFORT) -> Plan:
    """Return the plan, packed first if it lacks addresses."""
    if len(plan.addresses) or not graph.sizes[~graph.persistent].any():
        return plan
    packing = pack_plan(graph, plan, Problem(graph, plan.callees).transient, effort=effort)
    return replace(plan, addresses=packing.addresses, arena_bytes=packing.arena_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The residencies and scratch of one memory space by first step; ranges of steps are half-open."""

    names: list[str]
    ops: list[str]
    """Empty for buffers that exist from the start."""
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    """Addresses; scratch has none in a plan and is placed above the arena."""
    arena_bytes: int
    reserved_bytes: int
    """End of the highest buffer or scratch."""

    @classmethod
    def of(cls, graph: Graph, plan: Plan, space: int) -> "Placed":
        """Return the residencies of a space, without empty and persistent buffers. O(n log n)."""
        table = Addresses.of(plan.addresses).table
        table = table[table[:, 3] == space]
        runs = np.flatnonzero(plan.kinds == StepKind.RUN)
        scratch = Problem(graph, plan.callees).transient[plan.targets[runs], space]
        busy, extra = runs[scratch > 0], scratch[scratch > 0]
        sizes = graph.sizes[table[:, 0]]
        arena = int((table[:, 4] + sizes).max(initial=0))
        producers = graph.structure.producers[table[:, 0]].tolist()
        at = [graph.op_names[op] for op in plan.targets[busy].tolist()]
        names = [*(graph.buffer_names[buffer] for buffer in table[:, 0].tolist()), *(f"scratch of {op}" for op in at)]
        ops = [*("" if op < 0 else graph.op_names[op] for op in producers), *at]
        # buffers from before the first step begin together, even if that step frees some
        there = graph.counted_at_start[table[:, 0]] & (graph.buffer_spaces[table[:, 0]] == space) & (table[:, 1] <= 0)
        first = np.concatenate([np.where(there, -1, table[:, 1]), busy])
        order = np.argsort(first, kind="stable")
        return cls(
            names=[names[row] for row in order.tolist()],
            ops=[ops[row] for row in order.tolist()],
            first=first[order],
            last=np.concatenate([table[:, 2], busy + 1])[order],
            sizes=np.concatenate([sizes, extra])[order],
            offsets=np.concatenate([table[:, 4], np.full(len(busy), arena)])[order],
            arena_bytes=arena,
            reserved_bytes=arena + int(extra.max(initial=0)),
        )

    def events(self) -> list[tuple[int, bool, int]]:
        """Return sorted (step, is an allocation, row); frees come before allocations."""
        begins = [(int(step), True, row) for row, step in enumerate(self.first.tolist())]
        ends = [(int(step), False, row) for row, step in enumerate(self.last.tolist())]
        return sorted(begins + ends)
