"""A plan's residencies as exports need them: with names, addresses and the order in which storage changes hands."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.packing import pack_plan
from lowtide.engine.plan import Addresses, Plan, StepKind


def with_addresses(graph: Graph, plan: Plan) -> Plan:
    """Return the plan, packed where it holds bytes and nobody gave them addresses."""
    if len(plan.addresses) or not graph.sizes[~graph.persistent].any():
        return plan
    packing = pack_plan(graph, plan, Problem(graph, plan.callees).transient)
    return replace(plan, addresses=packing.addresses, arena_bytes=packing.arena_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The residencies of one memory space in order of their first step, scratch among them; steps are half-open."""

    names: list[str]
    ops: list[str]
    """Who allocated each; empty for what is there from the start."""
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    """Scratch has no address in a plan: it lies above the arena."""
    arena_bytes: int
    """The end of the highest residency that is no scratch."""
    reserved_bytes: int
    """The end of the highest of all."""

    @classmethod
    def of(cls, graph: Graph, plan: Plan, space: int) -> "Placed":
        """Return what lies in a space; zero-sized buffers and persistent ones are left out. O(n log n)."""
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
        # what is there before the first step is there at once, even where that step frees some of it
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
        """Return (step, whether it is an allocation, row) in order; at each step what ends comes before what begins."""
        begins = [(int(step), True, row) for row, step in enumerate(self.first.tolist())]
        ends = [(int(step), False, row) for row, step in enumerate(self.last.tolist())]
        return sorted(begins + ends)
