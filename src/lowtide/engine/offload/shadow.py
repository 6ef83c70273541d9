"""A program that prefetches some buffers from the host instead of recomputing them.

A "load" op writes each right after its producer, from a copy on the host. A second run of a load is a prefetch, so
planning recomputation of this program plans offload too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph, Lifetime, Op
from lowtide.engine.graph.op import op_columns
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run, Step
from lowtide.engine.recompute.program import OrderedProgram

_LOAD_PRICE = 1e-3
"""Cost of a prefetch that hides, relative to its transfer."""
_EXTRA_LOAD_PRICE = 1.0
"""The same for other prefetches."""


@dataclass(frozen=True, slots=True, eq=False)
class Shadow:
    """A program with loads, and its original ops and buffers."""

    program: OrderedProgram
    ops: NDArray[np.int32]
    """Per op, the original op, -1 for a load."""
    loaded: NDArray[np.int32]
    """Per op, the buffer it loads, -1 for other ops."""
    copies: NDArray[np.int32]

    def steps_with_copies(self, plan: Plan, host: SpaceId) -> list[Step]:
        """Return a plan's steps with copies right after production and right before use. O(steps)."""
        n_buffers = self.program.problem.graph.n_buffers - len(self.copies)
        runs = np.bincount(plan.order(), minlength=len(self.ops))
        offloaded = set(self.loaded[(self.loaded >= 0) & (runs > 1)].tolist())
        ops, loaded, copies = self.ops.tolist(), self.loaded.tolist(), self.copies.tolist()
        out: set[BufferId] = set()
        steps: list[Step] = []
        for step in plan.steps():
            match step:
                case Run(op, pairs):
                    buffer = loaded[op]
                    if buffer < 0:
                        steps.append(Run(ops[op], pairs))
                    elif buffer in out:
                        steps.append(CopyIn(buffer, host))
                    elif buffer in offloaded:
                        steps.append(CopyOut(buffer, host))
                        out.add(buffer)
                case Free(buffer):
                    if buffer < n_buffers:
                        steps.append(step)
                    elif copies[buffer - n_buffers] in offloaded:
                        steps.append(Free(copies[buffer - n_buffers], host))
                case _:
                    steps.append(step)
        return steps


def shadow_of(
    program: OrderedProgram,
    offloaded: NDArray[np.bool_],
    hidden: NDArray[np.bool_],
    host: SpaceId,
    seconds_per_byte: float,
    *,
    rerun: bool,
) -> Shadow:
    """Return the program that loads the offloaded buffers. O(n + e).

    Copies of `hidden` buffers cost almost nothing. Without `rerun`, only loads may run twice. A producer's scratch
    includes the bytes loaded after it.
    """
    graph = program.problem.graph
    chosen: list[BufferId] = np.flatnonzero(offloaded).tolist()
    copy_of = {buffer: graph.n_buffers + k for k, buffer in enumerate(chosen)}
    records: list[Op] = []
    ops: list[OpId] = []
    loaded: list[BufferId] = []
    first: list[OpId] = []
    for op, (record, allocates) in enumerate(zip(graph.ops(), graph.structure.allocates, strict=True)):
        goes = [buffer for buffer in allocates if buffer in copy_of]
        first.append(len(records))
        records.append(_producer(graph, record, copy_of, first, may_rerun=rerun and not goes))
        records += [_load(graph, buffer, copy_of[buffer]) for buffer in goes]
        ops += [op, *(-1 for _ in goes)]
        loaded += [-1, *goes]
    shadow = replace(
        graph,
        buffer_names=[*graph.buffer_names, *(f"{graph.buffer_names[buffer]} on the host" for buffer in chosen)],
        sizes=np.append(graph.sizes, graph.sizes[chosen]),
        lifetimes=np.append(graph.lifetimes, np.full(len(chosen), Lifetime.INTERMEDIATE, np.uint8)).astype(np.uint8),
        buffer_spaces=np.append(graph.buffer_spaces, np.full(len(chosen), host, np.int16)).astype(np.int16),
        **op_columns(records),
    )
    prices = (np.where(hidden, _LOAD_PRICE, _EXTRA_LOAD_PRICE) * seconds_per_byte * graph.sizes).tolist()
    cost: list[float] = program.cost.tolist()
    costs = np.asarray([cost[op] if op >= 0 else prices[b] for op, b in zip(ops, loaded, strict=True)])
    first.append(len(ops))
    base: list[OpId] = program.order.tolist()
    order = [each for op in base for each in range(first[op], first[op + 1])]
    problem = Problem(shadow, program.problem.callees, program.problem.in_place)
    return Shadow(
        OrderedProgram(problem, np.asarray(order, np.int32), costs, program.space),
        np.asarray(ops, np.int32),
        np.asarray(loaded, np.int32),
        np.asarray(chosen, np.int32),
    )


def _producer(
    graph: Graph, record: Op, copy_of: Mapping[BufferId, BufferId], first: Sequence[OpId], *, may_rerun: bool
) -> Op:
    goes = [buffer for buffer in record.writes if buffer in copy_of]
    return structs.replace(
        record,
        writes=tuple(copy_of.get(buffer, buffer) for buffer in record.writes),
        after=tuple(first[earlier] for earlier in record.after),
        in_place=tuple(pair for pair in record.in_place if pair[1] not in copy_of),
        scratch_bytes=record.scratch_bytes + sum(int(graph.sizes[buffer]) for buffer in goes),
        pure=record.pure and may_rerun,
        repeatable=record.repeatable and may_rerun,
        cost=0.0,
        flops=0.0,
    )


def _load(graph: Graph, buffer: BufferId, copy: BufferId) -> Op:
    name = f"load {graph.buffer_names[buffer]}"
    return Op(name=name, kind="load", reads=(copy,), writes=(buffer,), cost=0.0, flops=0.0)
