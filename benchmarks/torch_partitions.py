"""What torch's own partitioner decides at a sweep of activation memory budgets, as plans of the joint graph."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
import torch._functorch.config as settings
from torch import nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule, Node

from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan import verify
from lowtide.engine.recompute.checkpointing import plan_of_runs
from lowtide.frameworks.torch.reading.lowering import lower
from lowtide.frameworks.torch.reading.read import graph_of
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.table import INFERENCE

ACTIVATION_BUDGETS = tuple(step / 20 for step in range(20, -1, -1))


@dataclass(frozen=True)
class Joint:
    """A forward and backward pass as one graph, in torch's form and in lowtide's; ops carry their eager prices."""

    module: GraphModule
    n_forward_outputs: int
    static_inputs: list[int]
    graph: Graph


@dataclass(frozen=True)
class Partition:
    """What torch decided, as lowtide prices and simulates it."""

    activation_budget: float
    peak_bytes: int
    extra_cost: float


def joint_of(name: str, model: nn.Module, example: Sequence[torch.Tensor]) -> Joint:
    """Trace the training of a module that returns its loss; nothing is computed.

    The partitioner starts with common subexpressions; they are merged here, so that both sides get the same program.
    """
    with ExitStack() as stack:
        exported: Any = aot_export_joint_with_descriptors(stack, model, tuple(example))
        n_forward_outputs = exported._aot_state.fw_metadata.num_forward
    module: GraphModule = exported.graph_module
    module = run_rewrites(module, INFERENCE)
    module.graph = fx_graph_cse(module.graph)
    module.recompile()
    kept = [_is_kept(node) for node in module.graph.find_nodes(op="placeholder")]
    names = [node.name for node in module.graph.find_nodes(op="placeholder")]
    lifetimes = [Lifetime.PERSISTENT if keep else Lifetime.INPUT for keep in kept]
    return Joint(
        module=module,
        n_forward_outputs=n_forward_outputs,
        static_inputs=[place for place, keep in enumerate(kept) if keep],
        graph=graph_of(name, module, lower(module, list(zip(names, lifetimes, strict=True)))),
    )


def _is_kept(placeholder: Node) -> bool:
    """Tell whether an input is a parameter or a buffer of the module."""
    described = placeholder.meta["desc"]
    return bool(described.is_param() or described.is_buffer())


def partitions_of(joint: Joint) -> list[Partition]:
    """Return what the partitioner makes of every activation budget, without plans that another one beats."""
    found = [_partition(joint, budget) for budget in ACTIVATION_BUDGETS]
    found.sort(key=lambda each: (each.extra_cost, each.peak_bytes))  # stable: of equals the largest budget comes first
    lowest = [min((each.peak_bytes for each in found[:place]), default=None) for place in range(len(found))]
    return [each for each, low in zip(found, lowest, strict=True) if low is None or each.peak_bytes < low]


def _partition(joint: Joint, budget: float) -> Partition:
    with settings.patch(activation_memory_budget=budget):
        forward, backward = min_cut_rematerialization_partition(
            GraphModule(joint.module, fx_graph_cse(joint.module.graph)),
            None,
            num_fwd_outputs=joint.n_forward_outputs,
            static_lifetime_input_indices=joint.static_inputs,
        )
    graph = joint.graph
    ops = {name: op for op, name in enumerate(graph.op_names)}
    nodes: list[Node] = [*forward.graph.nodes, *backward.graph.nodes]
    runs = [ops[node.name] for node in nodes if node.op == "call_function" and node.name in ops]
    plan = plan_of_runs(graph, runs)
    verify(graph, plan, check_capacity=False)
    return Partition(
        activation_budget=budget,
        peak_bytes=simulate(graph, plan).peak_bytes[graph.spaces[0].name],
        extra_cost=float(graph.cost[runs].sum() - graph.cost.sum()),
    )
