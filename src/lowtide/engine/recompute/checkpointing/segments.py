"""Chen's checkpointing: cut the forward pass into about the square root of n segments, keep what crosses the cuts."""

import math

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import OpId
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, verify
from lowtide.engine.recompute.checkpointing.runs import plan_of_runs, rerunnable_ops


def segment_plan(graph: Graph, *, backward_from: OpId | None = None, n_segments: int | None = None) -> Plan:
    """Return the verified plan that keeps only what segments of the forward pass hand on and runs the rest again.

    `backward_from` is the first op of the backward pass, by default the op at the peak of the program, where a training
    step turns. The ops before it are cut into `n_segments` with as many ops each, by default the square root of all of
    them, rounded up. The last segment, which the backward pass reads at once, drops nothing. When the backward pass
    first reads something that a segment dropped, all that it reads of this segment is computed again, in program order.
    Ops that cannot run twice keep their results. Raises UsageError for numbers out of range.

    Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost. O(n + e). On a chain of n equal ops the
    peak is in O(sqrt(n)) for one more forward pass; on other graphs nothing is guaranteed.
    """
    turn = _turn(graph) if backward_from is None else backward_from
    if not 0 <= turn <= graph.n_ops:
        raise UsageError(f"the backward pass cannot start at op {turn}; give a number from 0 to {graph.n_ops}")
    count = math.isqrt(max(turn - 1, 0)) + 1 if n_segments is None else n_segments
    if count < 1:
        raise UsageError(f"the forward pass cannot be cut into {count} segments; give at least 1")
    segment_of = np.full(graph.n_ops, count, np.int64)
    segment_of[:turn] = np.arange(turn) * count // max(turn, 1)
    plan = plan_of_runs(graph, _runs(graph, turn, segment_of))
    verify(graph, plan, check_capacity=False)
    return plan


def _turn(graph: Graph) -> OpId:
    """Return the op at the peak of the program in the first memory space; the number of ops where inputs are the peak.

    Everything counts as forward pass then, and nothing is dropped.
    """
    plan = Plan.baseline(graph)
    footprint = simulate(graph, plan)
    step = footprint.peak_steps[footprint.spaces[0]]
    return graph.n_ops if step < 0 else int(plan.targets[step])


def _runs(graph: Graph, turn: OpId, segment_of: NDArray[np.int64]) -> list[OpId]:
    """Return the program with the dropped part of a segment run again where the backward pass first reads it."""
    again = _dropped_by_segment(graph, turn, segment_of)
    producers: list[OpId] = graph.structure.producers.tolist()
    rerun = {op: segment for segment, ops in enumerate(again) for op in ops}
    runs: list[OpId] = []
    done: set[int] = set()
    for op, touches in enumerate(graph.structure.touches):
        if op >= turn:
            for buffer in touches:
                segment = rerun.get(producers[buffer])
                if segment is not None and segment not in done:
                    done.add(segment)
                    runs.extend(again[segment])
        runs.append(op)
    return runs


def _dropped_by_segment(graph: Graph, turn: OpId, segment_of: NDArray[np.int64]) -> list[list[OpId]]:
    """Per segment, the ops to run again: those whose results leave the segment only for the backward pass, and the
    ops of the segment that these need."""
    segments: list[int] = segment_of.tolist()
    last = max(segments[:turn], default=0)
    may_drop: list[bool] = (rerunnable_ops(graph) & (segment_of < last)).tolist()
    structure = graph.structure
    allocates, touches, users = list(structure.allocates), list(structure.touches), list(structure.users)
    producers: list[OpId] = graph.structure.producers.tolist()
    again: list[list[OpId]] = [[] for _ in range(max(segments, default=0) + 1)]
    wanted = [False] * graph.n_ops
    for op in range(turn - 1, -1, -1):
        readers = [user for buffer in allocates[op] for user in users[buffer]]
        crosses = any(user < turn and segments[user] != segments[op] for user in readers)
        if may_drop[op] and not crosses and (wanted[op] or any(user >= turn for user in readers)):
            again[segments[op]].append(op)
            for buffer in touches[op]:
                producer = producers[buffer]
                if producer >= 0 and segments[producer] == segments[op]:
                    wanted[producer] = True
    return [ops[::-1] for ops in again]
