"""Buffers that may be offloaded, and greedy choices."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import SpaceId
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import may_run_twice
from lowtide.engine.offload.host_space import Link
from lowtide.engine.recompute.floor import first_and_last_use
from lowtide.engine.recompute.program import Execution, OrderedProgram

SHARES = (1.0, 0.75, 0.5, 0.3, 0.15)
"""Shares of the streams to fill. A full stream may stall in practice."""


def offloadable_buffers(program: OrderedProgram) -> NDArray[np.bool_]:
    """Return a mask of the buffers that a plan may copy to the host and back. O(n + e).

    Such a buffer is in the budget's space and written once, by an op that may run twice, calls no graph and has its
    scratch there. All results of the op must qualify.
    """
    graph = program.problem.graph
    accesses = np.zeros(graph.n_buffers, np.int64)
    for rows in (graph.writes, graph.mutates):
        np.add.at(accesses, rows.values, 1)
    written_once = (graph.buffer_spaces == program.space) & ~graph.exists_at_start & (accesses == 1)
    ops = _ops_confined_to(graph, program.space)
    allocates = graph.structure.allocates
    ops[allocates.owners()[~written_once[allocates.values]]] = False
    buffers = np.zeros(graph.n_buffers, np.bool_)
    buffers[allocates.values[ops[allocates.owners()]]] = True
    return buffers & (graph.sizes > 0)


def _ops_confined_to(graph: Graph, space: SpaceId) -> NDArray[np.bool_]:
    calls = np.fromiter((bool(names) for names in graph.callees), np.bool_, graph.n_ops)
    return may_run_twice(graph) & ~calls & (graph.scratch_spaces == space)


def with_results_of_same_ops(
    graph: Graph, offloaded: NDArray[np.bool_], allowed: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    ops = np.zeros(graph.n_ops, np.bool_)
    ops[graph.structure.producers[offloaded]] = True
    allocates = graph.structure.allocates
    chosen = np.zeros(graph.n_buffers, np.bool_)
    chosen[allocates.values[ops[allocates.owners()]]] = True
    return chosen & allowed


def greedy_choices(
    program: OrderedProgram, recomputed: Execution, baseline: Execution, link: Link, room_bytes: int
) -> Iterator[NDArray[np.bool_]]:
    """Yield masks of buffers to offload that are idle at the unmodified program's peak. O(n log n) each.

    One order puts the highest recompute cost per byte first. The other puts buffers first that cost at least as much as
    any op recomputed in `recomputed`. Both end when the streams or `room_bytes` are full.
    """
    idle = idle_at_peak(program, baseline)
    if not len(idle):
        return
    graph, seconds = program.problem.graph, program.cost[program.order]
    peak = int(baseline.stages[int(baseline.live.argmax())])
    hidden_bytes = min(
        link.out_bytes_per_s * float(seconds[: peak + 1].sum()), link.back_bytes_per_s * float(seconds[peak:].sum())
    )
    first, _ = first_and_last_use(program)
    per_byte = program.cost[graph.structure.producers[idle]] / graph.sizes[idle]
    reruns = recomputed.runs[program.places[recomputed.runs] != recomputed.stages]
    highest_cost = _max_cost_per_byte(program, reruns)
    dear_first = idle[np.lexsort((idle, -per_byte))]
    early_first = idle[np.lexsort((idle, first[idle], per_byte < highest_cost))]
    for order in (early_first, dear_first):
        total = np.cumsum(graph.sizes[order])
        for share in SHARES:
            offloaded = np.zeros(graph.n_buffers, np.bool_)
            offloaded[order[total <= min(share * hidden_bytes, room_bytes)]] = True
            yield offloaded
    for order in (early_first, dear_first):
        offloaded = np.zeros(graph.n_buffers, np.bool_)
        offloaded[order[np.cumsum(graph.sizes[order]) <= room_bytes]] = True
        yield offloaded


def idle_at_peak(program: OrderedProgram, baseline: Execution) -> NDArray[np.int64]:
    graph = program.problem.graph
    if not graph.n_ops:
        return np.zeros(0, np.int64)
    peak = int(baseline.stages[int(baseline.live.argmax())])
    first, last = first_and_last_use(program)
    idle = offloadable_buffers(program) & (first < peak) & (last > peak)
    idle[graph.structure.touches[int(program.order[peak])]] = False
    return np.flatnonzero(idle)


def _max_cost_per_byte(program: OrderedProgram, reruns: NDArray[np.int32]) -> float:
    graph = program.problem.graph
    highest_cost = 0.0
    for op in np.unique(reruns).tolist():
        size = int(program.counted_sizes[graph.structure.allocates[op]].sum())
        if size:
            highest_cost = max(highest_cost, float(program.cost[op]) / size)
    return highest_cost
