"""Grappler's recompute heuristics: which ops to compute again, for which targets."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph
from lowtide.engine.recompute.checkpointing import rerunnable_ops
from lowtide.frameworks.tensorflow.grappler.hints import Hints
from lowtide.frameworks.tensorflow.grappler.nodes import Nodes

DEFAULT_SCOPE = "gradients/"
"""The name scope of the ops that may read recomputed values."""
TAPE_SCOPE = "gradient_tape/"
"""The same in functions of TensorFlow 2, whose gradients come from a tape."""


@dataclass(frozen=True, slots=True)
class Group:
    """Ops that are computed again together, and the ops that read what they rematerialize; both in program order."""

    ops: tuple[OpId, ...]
    targets: tuple[OpId, ...]


def is_in_scope(name: str, scope: str) -> bool:
    """Return whether a name starts with a scope or holds it after a slash."""
    return name.startswith(scope) or f"/{scope}" in name


def target_ops(graph: Graph, scope: str) -> list[bool]:
    """Return, per op, whether its name is in a scope."""
    return [is_in_scope(name, scope) for name in graph.op_names]


def candidate_ops(graph: Graph, targets: Sequence[bool], cheap: Collection[str], hints: Hints) -> list[bool]:
    """Return, per op, whether it may be recomputed: cheap by kind or hinted, no target, not fed.

    Beyond Grappler it must be able to run twice. Grappler recomputes random ops too, which gives other numbers.
    """
    return [
        bool(may) and not target and name not in hints.fed and (kind in cheap or name in hints.recompute)
        for may, target, name, kind in zip(rerunnable_ops(graph), targets, graph.op_names, graph.op_kinds, strict=True)
    ]


def recompute_groups(nodes: Nodes, candidates: Sequence[bool], targets: Sequence[bool]) -> list[Group]:
    """Group connected candidates where one of them feeds a target and reads none. O(n + e).

    Of each group, the ops that lead to a target are computed again. Source: memory_optimizer.cc of TensorFlow,
    GetOpGroupsToRecompute.
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


def bytes_saved(graph: Graph, nodes: Nodes, group: Group) -> int:
    """Return what a group frees while its targets have not begun, less what must be kept for its copies. O(n + e).

    Its results are freed that only targets read late; kept are inputs from outside that nobody else reads that late.
    Beyond Grappler, which recomputes a ReLU alone, whose input is as large.
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
    """Return what can be reached over allowed neighbors, the start included, in program order."""
    found = set(start)
    stack = list(found)
    while stack:
        op = stack.pop()
        for neighbor in (*nodes.inputs[op], *(nodes.outputs[op] if outputs_too else ())):
            if allowed[neighbor] and neighbor not in found:
                found.add(neighbor)
                stack.append(neighbor)
    return sorted(found)
