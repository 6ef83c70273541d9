"""From a sequence of runs, some ops more than once, to a plan that frees every buffer at its last use."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import BufferId, OpId, Place
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.graph.execution import may_run_twice
from lowtide.engine.plan import Free, Plan, Run, Step


def rerunnable_ops(graph: Graph) -> NDArray[np.bool_]:
    """Return, per op, whether it can run again whenever what it reads is resident. O(n + e).

    It must be one that may run twice at all (`graph.reruns`), and nothing after it may write what it reads or writes.
    """
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
    """Build the plan that runs ops in this sequence and frees each residency of a buffer right after its last use.

    An op that occurs again writes its buffers anew; from the last use of the old contents to the rerun they take no
    memory. Outputs stay from their first run on. `before` and `after` add steps at a place in `runs`: before its run,
    and after its frees. The plan is not checked, `verify` does that. O(runs + e).
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
    """Per position in `runs`, the buffers whose contents nobody reads after it; found from the last run backward."""
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
