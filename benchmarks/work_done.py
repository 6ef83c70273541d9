"""How much work graphs are, so that what is recomputed can be counted."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from lowtide.frameworks.torch.backend.planning import PlannedModule
from lowtide.frameworks.torch.costs import seconds_of
from lowtide.frameworks.torch.lowering import lower_body


@dataclass(frozen=True)
class Work:
    """Floating-point operations, and seconds by the eager profile."""

    flops: int
    seconds: float

    def more_than(self, other: "Work") -> "Work":
        """Return what this is above another."""
        return Work(self.flops - other.flops, self.seconds - other.seconds)


def work_of(modules: Iterable[GraphModule]) -> Work:
    """Add up all ops of aten graphs that compute something; views are free."""
    return _sum([op.node for module in modules for op in lower_body(module).ops])


def repeated_work(program: PlannedModule) -> Work:
    """Add up what a plan runs again."""
    nodes = {node.name: node for node in program.source.graph.nodes}
    runs = Counter(program.result.plan.order().tolist())
    names = program.graph.op_names
    return _sum([nodes[names[op]] for op, times in sorted(runs.items()) for _ in range(times - 1)])


def _sum(nodes: Sequence[Node]) -> Work:
    computing = [node for node in nodes if _computes(node)]
    return Work(sum(map(_flops, computing)), math.fsum(map(seconds_of, computing)))


def _computes(node: Node) -> bool:
    return getattr(node.target, "namespace", "") != "lowtide"  # where the forward pass ends, nothing is computed


def _flops(node: Node) -> int:
    """Return what PyTorch's FLOP counter says, and one an element of the result where it has no formula."""
    target: Any = node.target
    formula = flop_registry.get(getattr(target, "overloadpacket", None))
    if formula is None:
        leaves = pytree.tree_leaves(node.meta.get("val"))
        return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda each: each.meta["val"])
    return int(formula(*args, **kwargs, out_val=node.meta["val"]))
