"""When recomputed ops run again: after the longest time for which nobody reads the value."""

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise

from lowtide.core.index_spaces import OpId
from lowtide.engine.graph import Graph
from lowtide.frameworks.tensorflow.grappler.groups import Group
from lowtide.frameworks.tensorflow.grappler.nodes import Nodes


def late_runs(graph: Graph, nodes: Nodes, groups: Sequence[Group]) -> list[OpId]:
    """Return the ops in the order in which they run, recomputed ones again where targets need them. O(n + e).

    Grappler makes the rerun wait for a no-op that waits for other inputs of the targets. Where such an input is ready
    at once, as the shape of an activation is, the op runs again in the forward pass and saves nothing. Here the place
    is enforced. A value is dropped for the longest time between two of its reads of which the later is a target's.
    Reads before that time see the original. The op runs again right before the first read after it, or right before a
    rerun that needs it. An op that no target reads is dropped after the last read of its original.
    """
    repeated = {op for group in groups for op in group.ops}
    targets = {target for group in groups for target in group.targets}
    clock = list(accumulate(graph.cost.tolist(), initial=0.0))
    left_after = {op: _left_after(op, nodes, targets, clock) for op in repeated}
    runs: list[OpId] = []
    has_rerun: set[OpId] = set()
    for op in range(graph.n_ops):
        if op in targets:
            for source in nodes.inputs[op]:
                if source in repeated and op > left_after[source] and source not in has_rerun:
                    _run_again(source, op, nodes, repeated, left_after, has_rerun, runs)
        runs.append(op)
    return runs


def _left_after(op: OpId, nodes: Nodes, targets: Collection[OpId], clock: Sequence[float]) -> OpId:
    """Return the last op that reads the original: where the longest wait for a target begins."""
    uses = [op, *nodes.outputs[op]]
    waits = [(clock[later] - clock[first + 1], -first) for first, later in pairwise(uses) if later in targets]
    return -max(waits)[1] if waits else uses[-1]


def _run_again(
    op: OpId,
    at: OpId,
    nodes: Nodes,
    repeated: Collection[OpId],
    left_after: dict[OpId, OpId],
    has_rerun: set[OpId],
    runs: list[OpId],
) -> None:
    """Append a rerun, after reruns of the ops it reads whose originals are gone by then and that did not rerun yet."""
    stack = [op]
    while stack:
        missing = [
            source
            for source in nodes.inputs[stack[-1]]
            if source in repeated and at > left_after[source] and source not in has_rerun
        ]
        if missing:
            stack.append(missing[0])
        else:
            has_rerun.add(stack[-1])
            runs.append(stack.pop())
