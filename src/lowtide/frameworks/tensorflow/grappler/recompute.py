"""Grappler's recomputation."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph
from lowtide.engine.recompute.checkpointing import rerunnable_ops
from lowtide.frameworks.tensorflow.grappler.nodes import Hints, Nodes

DEFAULT_SCOPE = "gradients/"
"""The name scope of readers of recomputed values."""
TAPE_SCOPE = "gradient_tape/"
"""The scope of gradients in functions of TensorFlow 2."""


@dataclass(frozen=True, slots=True)
class Group:
    """Ops recomputed together, and the targets that read them."""

    ops: tuple[OpId, ...]
    targets: tuple[OpId, ...]


def is_in_scope(name: str, scope: str) -> bool:
    """Return whether a name is in a scope, nested ones included."""
    return name.startswith(scope) or f"/{scope}" in name


def target_ops(graph: Graph, scope: str) -> list[bool]:
    return [is_in_scope(name, scope) for name in graph.op_names]


def candidate_ops(graph: Graph, targets: Sequence[bool], cheap: Collection[str], hints: Hints) -> list[bool]:
    """Return, per op, whether it may be recomputed: cheap by kind or hinted, no target, not fed.

    Grappler also recomputes random ops, which changes results.
    """
    return [
        bool(may) and not target and name not in hints.fed and (kind in cheap or name in hints.recompute)
        for may, target, name, kind in zip(rerunnable_ops(graph), targets, graph.op_names, graph.op_kinds, strict=True)
    ]


def recompute_groups(nodes: Nodes, candidates: Sequence[bool], targets: Sequence[bool]) -> list[Group]:
    """Group connected candidates if one feeds a target and reads none. O(n + e).

    Source: GetOpGroupsToRecompute.
    """
    groups: list[Group] = []
    seen = [False] * len(candidates)
    for seed, may in enumerate(candidates):
        if not may or seen[seed]:
            continue
        feeds_target = any(targets[reader] for reader in nodes.outputs[seed])
        if not feeds_target or any(targets[source] for source in nodes.inputs[seed]):
            continue
        members = _reach([seed], nodes, candidates, outputs_too=True)
        for op in members:
            seen[op] = True
        sources = [op for op in members if any(targets[reader] for reader in nodes.outputs[op])]
        inside = [False] * len(candidates)
        for op in members:
            inside[op] = True
        readers = {reader for op in sources for reader in nodes.outputs[op] if targets[reader]}
        groups.append(Group(tuple(_reach(sources, nodes, inside, outputs_too=False)), tuple(sorted(readers))))
    return groups


def groups_in_scope(graph: Graph, nodes: Nodes, scope: str, cheap: Collection[str], hints: Hints) -> list[Group]:
    targets = target_ops(graph, scope)
    return recompute_groups(nodes, candidate_ops(graph, targets, cheap, hints), targets)


def bytes_saved(graph: Graph, nodes: Nodes, group: Group) -> int:
    """Return the bytes that recomputing a group frees until its first target, less the inputs kept alive. O(n + e).

    Grappler has no such check.
    """
    inside, targets = set(group.ops), set(group.targets)
    begin = min(group.targets)
    freed = kept = 0
    inputs: set[BufferId] = set()
    for op in group.ops:
        written: list[BufferId] = graph.writes[op].tolist()
        for buffer in written:
            late = [reader for reader, _ in nodes.readers[buffer] if reader >= begin]
            if late and targets.issuperset(late):
                freed += int(graph.sizes[buffer])
        inputs.update(graph.reads[op].tolist())
    for buffer in sorted(inputs):
        is_outside = inside.isdisjoint(nodes.writers[buffer]) and not graph.persistent[buffer]
        if is_outside and all(reader < begin for reader, _ in nodes.readers[buffer]):
            kept += int(graph.sizes[buffer])
    return freed - kept


def _reach(start: Iterable[OpId], nodes: Nodes, allowed: Sequence[bool], *, outputs_too: bool) -> list[OpId]:
    found = set(start)
    stack = list(found)
    while stack:
        op = stack.pop()
        for neighbor in (*nodes.inputs[op], *(nodes.outputs[op] if outputs_too else ())):
            if allowed[neighbor] and neighbor not in found:
                found.add(neighbor)
                stack.append(neighbor)
    return sorted(found)


def late_runs(graph: Graph, nodes: Nodes, groups: Sequence[Group]) -> list[OpId]:
    """Return all runs in order, with recomputed runs where targets need them. O(n + e).

    Grappler's recomputed runs may run in the forward pass and save nothing.
    """
    targets = {target for group in groups for target in group.targets}
    clock = list(accumulate(graph.cost.tolist(), initial=0.0))
    last_reader = {op: _last_original_reader(op, nodes, targets, clock) for group in groups for op in group.ops}
    runs: list[OpId] = []
    recomputed: set[OpId] = set()

    def missing_inputs(op: OpId, at: OpId) -> list[OpId]:
        inputs = nodes.inputs[op]
        return [each for each in inputs if at > last_reader.get(each, at) and each not in recomputed]

    for op in range(graph.n_ops):
        stack = missing_inputs(op, op)[::-1] if op in targets else []
        while stack:
            missing = missing_inputs(stack[-1], op)
            if missing:
                stack.append(missing[0])
                continue
            source = stack.pop()
            if source not in recomputed:
                recomputed.add(source)
                runs.append(source)
        runs.append(op)
    return runs


def _last_original_reader(op: OpId, nodes: Nodes, targets: Collection[OpId], clock: Sequence[float]) -> OpId:
    uses = [op, *nodes.outputs[op]]
    waits = [(clock[later] - clock[first + 1], -first) for first, later in pairwise(uses) if later in targets]
    return -max(waits)[1] if waits else uses[-1]
