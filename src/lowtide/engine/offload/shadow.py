"""A program in which some buffers are prefetched from the host instead of being made again.

Every such buffer is written by an op "load" of its own right after its producer, from a copy on the host that the
producer leaves there. Whoever plans recomputation of this program plans offload with it: a second run of a load is a
prefetch.
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
from lowtide.engine.recompute.program import Program

_LOAD_PRICE = 1e-3
"""What a prefetch costs where it hides behind compute, as a part of the cost of its transfer: few are better."""
_EXTRA_LOAD_PRICE = 1.0
"""The same for a prefetch that nobody counted on."""


@dataclass(frozen=True, slots=True, eq=False)
class Shadow:
    """A program with loads, and what its ops and buffers stand for."""

    program: Program
    ops: NDArray[np.int32]
    """Per op, the op it stands for; -1 for a load."""
    loaded: NDArray[np.int32]
    """Per op, the buffer it loads; -1 for the others."""
    copies: NDArray[np.int32]
    """Per buffer from the first new one on, whose copy on the host it is."""

    def steps_with_copies(self, plan: Plan, host: SpaceId) -> list[Step]:
        """Return the steps that a plan of this program stands for, copies right after production and right before use.

        What is never loaded again is not copied at all. O(steps).
        """
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
    program: Program,
    offloaded: NDArray[np.bool_],
    hidden: NDArray[np.bool_],
    host: SpaceId,
    seconds_per_byte: float,
    *,
    rerun: bool,
) -> Shadow:
    """Return the program in which the offloaded buffers are loaded; all offloadable results of an op go together.

    Copies of `hidden` buffers are taken to hide behind compute, and cost next to nothing. Without `rerun`, nothing but
    loads may run again. A producer has the bytes of what is loaded right after it as scratch. In-place pairs into what
    is loaded are given up. O(n + e).
    """
    graph = program.problem.graph
    chosen: list[BufferId] = np.flatnonzero(offloaded).tolist()
    copy_of = {buffer: graph.n_buffers + k for k, buffer in enumerate(chosen)}
    records: list[Op] = []
    ops: list[OpId] = []
    loaded: list[BufferId] = []
    first: list[OpId] = []
    """Per op, its id in the new program."""
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
        Program(problem, np.asarray(order, np.int32), costs, program.space),
        np.asarray(ops, np.int32),
        np.asarray(loaded, np.int32),
        np.asarray(chosen, np.int32),
    )


def _producer(
    graph: Graph, record: Op, copy_of: Mapping[BufferId, BufferId], first: Sequence[OpId], *, may_rerun: bool
) -> Op:
    """Return an op that writes on the host what is loaded right after it; `first` has the new ids of the ops so far."""
    goes = [buffer for buffer in record.writes if buffer in copy_of]
    return structs.replace(
        record,
        writes=tuple(copy_of.get(buffer, buffer) for buffer in record.writes),
        after=tuple(first[earlier] for earlier in record.after),
        in_place=tuple(pair for pair in record.in_place if pair[1] not in copy_of),
        scratch_bytes=record.scratch_bytes + sum(int(graph.sizes[buffer]) for buffer in goes),
        pure=record.pure and may_rerun,
        cost=0.0,
        flops=0.0,
    )


def _load(graph: Graph, buffer: BufferId, copy: BufferId) -> Op:
    """Return the op that loads a buffer from its copy on the host."""
    name = f"load {graph.buffer_names[buffer]}"
    return Op(name=name, kind="load", reads=(copy,), writes=(buffer,), cost=0.0, flops=0.0)
