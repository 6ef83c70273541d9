"""A program in which some buffers are prefetched from the host instead of being made again.

Every such buffer is written by an op "load" of its own right after its producer, from a copy on the host that the
producer leaves there. Whoever plans recomputation of this program plans offload with it: a second run of a load is a
prefetch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.analysis.problem import Problem
from lowtide.graph import Graph, Lifetime, Rows
from lowtide.index_spaces import OpId, SpaceId
from lowtide.plan import CopyIn, CopyOut, Free, Plan, Run, Step
from lowtide.recompute.program import Program

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
        out: set[int] = set()
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

    Copies of `hidden` ones are taken to hide behind compute, and cost next to nothing. Without `rerun`, nothing but
    loads may run again. A producer has the bytes of what is loaded right after it as scratch; in-place pairs into those
    are given up. O(n + e).
    """
    graph = program.problem.graph
    chosen = np.flatnonzero(offloaded).tolist()
    copy_of = {buffer: graph.n_buffers + k for k, buffer in enumerate(chosen)}
    ops: list[OpId] = []
    loaded: list[int] = []
    for op, allocates in enumerate(graph.structure.allocates):
        goes = [buffer for buffer in allocates if buffer in copy_of]
        ops += [op, *(-1 for _ in goes)]
        loaded += [-1, *goes]
    place = np.flatnonzero(np.asarray(ops) >= 0)
    rows = _Lists(graph)
    writes = [[copy_of.get(buffer, buffer) for buffer in row] for row in rows.writes]
    in_place = [
        [buffer for pair in zip(row[::2], row[1::2], strict=True) if pair[1] not in copy_of for buffer in pair]
        for row in rows.in_place
    ]
    after = [[int(place[earlier]) for earlier in row] for row in rows.after]
    scratch, pure, cost = graph.scratch.tolist(), graph.pure.tolist(), program.cost.tolist()
    feeds = {int(graph.structure.producers[buffer]) for buffer in chosen}
    sizes: list[int] = graph.sizes.tolist()

    def spread(of_op: Sequence[list[int]], of_load: bool = False) -> Rows:
        return Rows.from_lists(
            [of_op[op] if op >= 0 else ([buffer] if of_load else []) for op, buffer in zip(ops, loaded, strict=True)]
        )

    shadow = replace(
        graph,
        buffer_names=[*graph.buffer_names, *(f"{graph.buffer_names[buffer]} on the host" for buffer in chosen)],
        sizes=np.append(graph.sizes, graph.sizes[chosen]),
        lifetimes=np.append(graph.lifetimes, np.full(len(chosen), Lifetime.INTERMEDIATE, np.uint8)).astype(np.uint8),
        buffer_spaces=np.append(graph.buffer_spaces, np.full(len(chosen), host, np.int16)).astype(np.int16),
        op_names=[
            graph.op_names[op] if op >= 0 else f"load {graph.buffer_names[buffer]}"
            for op, buffer in zip(ops, loaded, strict=True)
        ],
        op_kinds=[graph.op_kinds[op] if op >= 0 else "load" for op in ops],
        reads=Rows.from_lists(
            [rows.reads[op] if op >= 0 else [copy_of[buffer]] for op, buffer in zip(ops, loaded, strict=True)]
        ),
        writes=spread(writes, of_load=True),
        mutates=spread(rows.mutates),
        after=spread(after),
        in_place=spread(in_place),
        scratch=np.asarray(
            [
                scratch[op] + (sum(sizes[b] for b in rows.writes[op] if b in copy_of) if op in feeds else 0)
                if op >= 0
                else 0
                for op in ops
            ],
            np.int64,
        ),
        pure=np.asarray([rerun and pure[op] and op not in feeds if op >= 0 else True for op in ops], np.bool_),
        ordered=np.asarray([bool(graph.ordered[op]) if op >= 0 else False for op in ops], np.bool_),
        cost=np.zeros(len(ops)),
        flops=np.zeros(len(ops)),
        callees=[graph.callees[op] if op >= 0 else () for op in ops],
        devices=[graph.devices[op] if op >= 0 else None for op in ops],
    )
    prices = (np.where(hidden, _LOAD_PRICE, _EXTRA_LOAD_PRICE) * seconds_per_byte * graph.sizes).tolist()
    costs = np.asarray([cost[op] if op >= 0 else prices[b] for op, b in zip(ops, loaded, strict=True)])
    first: list[int] = [*place.tolist(), len(ops)]
    base: list[int] = program.order.tolist()
    order = [each for op in base for each in range(first[op], first[op + 1])]
    problem = Problem(shadow, program.problem.callees, program.problem.in_place)
    return Shadow(
        Program(problem, np.asarray(order, np.int32), costs, program.space),
        np.asarray(ops, np.int32),
        np.asarray(loaded, np.int32),
        np.asarray(chosen, np.int32),
    )


class _Lists:
    """The rows of a graph as lists."""

    def __init__(self, graph: Graph) -> None:
        self.reads, self.writes, self.mutates = list(graph.reads), list(graph.writes), list(graph.mutates)
        self.after, self.in_place = list(graph.after), list(graph.in_place)
