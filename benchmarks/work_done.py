"""How much work graphs are, so that what is recomputed can be counted."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.reading.costs import flops_of, seconds_of
from lowtide.frameworks.torch.reading.lowering import lower_body


@dataclass(frozen=True)
class Work:
    """Floating-point operations, and seconds by the eager profile."""

    flops: int
    seconds: float


def work_of(modules: Iterable[GraphModule]) -> Work:
    """Add up all ops of aten graphs that compute something; views are free."""
    return _sum([op.node for module in modules for op in lower_body(module).ops])


def recomputed_work(forward: GraphModule, backward: GraphModule) -> Work:
    """Add up what the backward graph of PyTorch's partitioner runs again: ops of the forward graph, by name."""
    before = {op.node.name for op in lower_body(forward).ops}
    return _sum([op.node for op in lower_body(backward).ops if op.node.name in before])


def repeated_work(program: PlannedModule) -> Work:
    """Add up what a plan runs again."""
    nodes = {node.name: node for node in program.source.graph.nodes}
    runs = Counter(program.result.plan.order().tolist())
    names = program.graph.op_names
    return _sum([nodes[names[op]] for op, times in sorted(runs.items()) for _ in range(times - 1)])


def _sum(nodes: Sequence[Node]) -> Work:
    computing = [node for node in nodes if _computes(node)]
    return Work(sum(map(flops_of, computing)), math.fsum(map(seconds_of, computing)))


def _computes(node: Node) -> bool:
    return getattr(node.target, "namespace", "") != "lowtide"  # where the forward pass ends, nothing is computed
