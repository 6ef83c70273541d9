"""Where the copies of recomputed ops run: in the longest time for which nobody reads the value."""

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise

from lowtide.graph import Graph
from lowtide.grappler.groups import Group
from lowtide.grappler.nodes import Nodes


def late_runs(graph: Graph, nodes: Nodes, groups: Sequence[Group]) -> list[int]:
    """Return the ops in the order in which they run, recomputed ones again where targets need them. O(n + e).

    Grappler makes a copy wait for a no-op that waits for other inputs of the targets. Where such an input is ready
    at once, as the shape of an activation is, the copy runs in the forward pass and saves nothing. Here the position
    is enforced: of the times between two reads of a value of which the second is a target's, the longest is chosen.
    Reads before it see the original. The copy runs right before the first read behind it, or before a copy that needs
    it; an op of a group that no target reads itself, after the last read of its original.
    """
    copied = {op for group in groups for op in group.ops}
    targets = {target for group in groups for target in group.targets}
    clock = list(accumulate(graph.cost.tolist(), initial=0.0))
    left_after = {op: _left_after(op, nodes, targets, clock) for op in copied}
    runs: list[int] = []
    has_copy: set[int] = set()
    for op in range(graph.n_ops):
        if op in targets:
            for source in nodes.inputs[op]:
                if source in copied and op > left_after[source] and source not in has_copy:
                    _run_again(source, op, nodes, copied, left_after, has_copy, runs)
        runs.append(op)
    return runs


def _left_after(op: int, nodes: Nodes, targets: Collection[int], clock: Sequence[float]) -> int:
    """Return the last op that reads the original: where the longest wait for a target begins."""
    uses = [op, *nodes.outputs[op]]
    waits = [(clock[later] - clock[first + 1], -first) for first, later in pairwise(uses) if later in targets]
    return -max(waits)[1] if waits else uses[-1]


def _run_again(
    op: int,
    at: int,
    nodes: Nodes,
    copied: Collection[int],
    left_after: dict[int, int],
    has_copy: set[int],
    runs: list[int],
) -> None:
    """Append an op, after the ops it reads whose originals are gone at this place and that have no copy yet."""
    stack = [op]
    while stack:
        missing = [
            source
            for source in nodes.inputs[stack[-1]]
            if source in copied and at > left_after[source] and source not in has_copy
        ]
        if missing:
            stack.append(missing[0])
        else:
            has_copy.add(stack[-1])
            runs.append(stack.pop())
