"""Gradient checkpointing by fixed rules."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import BufferId, OpId, Place
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.graph.execution import may_run_twice
from lowtide.engine.plan import Free, Plan, Run, Step, verify


def rerunnable_ops(graph: Graph) -> NDArray[np.bool_]:
    """Return a mask of ops recomputable whenever their operands are resident. O(n + e)."""
    last_writer = np.full(graph.n_buffers, -1, np.int64)
    for rows in (graph.writes, graph.mutates):
        np.maximum.at(last_writer, rows.values, rows.owners())
    result = may_run_twice(graph)
    for rows in (graph.structure.touches, graph.writes):
        owners = rows.owners()
        result[owners[last_writer[rows.values] > owners]] = False
    return result


def plan_of_runs(
    graph: Graph,
    runs: Sequence[OpId],
    *,
    before: Mapping[Place, Sequence[Step]] | None = None,
    after: Mapping[Place, Sequence[Step]] | None = None,
) -> Plan:
    """Return the plan that runs ops in this sequence and frees buffers after their last use.

    `before` and `after` add steps at places in `runs`. Unverified. O(runs + e).
    """
    frees = _frees(graph, runs)
    steps: list[Step] = [Free(buffer) for buffer in _never_used(graph)]
    for position, op in enumerate(runs):
        steps.extend((before or {}).get(position, ()))
        steps.append(Run(op))
        steps.extend(Free(buffer) for buffer in frees[position])
        steps.extend((after or {}).get(position, ()))
    return Plan.from_steps(graph, steps)


def _frees(graph: Graph, runs: Sequence[OpId]) -> list[list[BufferId]]:
    allocates, touches = list(graph.structure.allocates), list(graph.structure.touches)
    freeable = graph.freeable.tolist()
    needed = [False] * graph.n_buffers
    frees: list[list[BufferId]] = [[] for _ in runs]
    for position in range(len(runs) - 1, -1, -1):
        op = runs[position]
        for buffer in (*touches[op], *allocates[op]):
            if freeable[buffer] and not needed[buffer]:
                frees[position].append(buffer)
        for buffer in allocates[op]:
            needed[buffer] = False
        for buffer in touches[op]:
            needed[buffer] = True
        frees[position].sort()
    return frees


def _never_used(graph: Graph) -> list[BufferId]:
    used = np.diff(graph.structure.users.offsets) > 0
    return np.flatnonzero((graph.lifetimes == Lifetime.DONATED) & ~used).tolist()


def segment_plan(graph: Graph, *, backward_from: OpId | None = None, n_segments: int | None = None) -> Plan:
    """Return the verified plan that saves the tensors between segments and recomputes the others.

    Divides the ops before `backward_from` (default: the op at the peak) into `n_segments` (default: the square root of
    their number). The last segment drops nothing. Raises UsageError for numbers out of range.

    Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost. O(n + e). On a chain of n equal ops, the
    peak is in O(sqrt(n)) for one more forward pass.
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
    plan = Plan.baseline(graph)
    footprint = simulate(graph, plan)
    step = footprint.peak_steps[footprint.spaces[0]]
    return graph.n_ops if step < 0 else int(plan.targets[step])


def _runs(graph: Graph, turn: OpId, segment_of: NDArray[np.int64]) -> list[OpId]:
    recomputed = _dropped_by_segment(graph, turn, segment_of)
    producers: list[OpId] = graph.structure.producers.tolist()
    rerun = {op: segment for segment, ops in enumerate(recomputed) for op in ops}
    runs: list[OpId] = []
    done: set[int] = set()
    for op, touches in enumerate(graph.structure.touches):
        if op >= turn:
            for buffer in touches:
                segment = rerun.get(producers[buffer])
                if segment is not None and segment not in done:
                    done.add(segment)
                    runs.extend(recomputed[segment])
        runs.append(op)
    return runs


def _dropped_by_segment(graph: Graph, turn: OpId, segment_of: NDArray[np.int64]) -> list[list[OpId]]:
    segments: list[int] = segment_of.tolist()
    last = max(segments[:turn], default=0)
    may_drop: list[bool] = (rerunnable_ops(graph) & (segment_of < last)).tolist()
    structure = graph.structure
    allocates, touches, users = list(structure.allocates), list(structure.touches), list(structure.users)
    producers: list[OpId] = graph.structure.producers.tolist()
    recomputed: list[list[OpId]] = [[] for _ in range(max(segments, default=0) + 1)]
    wanted = [False] * graph.n_ops
    for op in range(turn - 1, -1, -1):
        readers = [user for buffer in allocates[op] for user in users[buffer]]
        crosses = any(user < turn and segments[user] != segments[op] for user in readers)
        if may_drop[op] and not crosses and (wanted[op] or any(user >= turn for user in readers)):
            recomputed[segments[op]].append(op)
            for buffer in touches[op]:
                producer = producers[buffer]
                if producer >= 0 and segments[producer] == segments[op]:
                    wanted[producer] = True
    return [ops[::-1] for ops in recomputed]
