"""A graph as Grappler sees it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph

CHEAP_KINDS = frozenset(
    {"Add", "AddN", "BiasAdd", "Cast", "Fill", "FloorDiv", "FloorMod", "FusedBatchNorm", "Mul", "Neg", "RealDiv"}
    | {"Reciprocal", "Relu", "Relu6", "Reshape", "Rsqrt", "Sigmoid", "Sqrt", "Square", "SquaredDifference", "Sub"}
    | {"Tile", "Transpose"}
)

CHEAP_KINDS_TODAY = CHEAP_KINDS | {
    *("AddV2", "Elu", "Exp", "FusedBatchNormV2", "FusedBatchNormV3", "LeakyRelu", "Maximum", "Minimum", "Selu"),
    *("Concat", "ConcatV2", "Softplus", "Softsign", "Tanh"),
}
"""`CHEAP_KINDS` and the ops that replaced them."""

SUM_KINDS = frozenset({"AccumulateNV2", "AddN"})

FORWARDING_KINDS = frozenset({"Identity", "Reshape"})

FORWARDING_KINDS_TODAY = FORWARDING_KINDS | {
    *("EnsureShape", "ExpandDims", "PreventGradient", "ReadVariableOp", "Squeeze", "StopGradient")
}
"""`FORWARDING_KINDS` and views that Grappler treats as new values."""

FRAME_KINDS = frozenset({"Enter", "Exit", "NextIteration", "RefEnter", "RefExit", "RefNextIteration"})
BRANCH_KINDS = frozenset({"Merge", "RefMerge", "RefSwitch", "Switch"})
"""Ops at the border of loops or branches."""

_ASSIGN_KINDS = frozenset({"Assign", "AssignVariableOp"})
_SEND_KINDS = frozenset({"_HostSend", "_Send"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Hints of the user by op name."""

    recompute: frozenset[str] = frozenset()
    """`_recompute_hint`: ops that may be recomputed."""
    swap: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    """`_swap_to_host`: indices of the reads that each op swaps."""
    fed: frozenset[str] = frozenset()
    """Fed ops, which are never recomputed."""

    def check(self, graph: Graph) -> None:
        """Raise UsageError for a missing op or read."""
        places = {name: op for op, name in enumerate(graph.op_names)}
        for name in sorted({*self.recompute, *self.swap, *self.fed}):
            if name not in places:
                raise UsageError(f"a hint names op {name!r}, which graph {graph.name!r} does not have")
        for name, inputs in self.swap.items():
            count = len(graph.reads[places[name]])
            for read in inputs:
                if not 0 <= read < count:
                    raise UsageError(
                        f"a swap hint names read {read} of op {name!r}, which has {count} reads, counted from 0"
                    )


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Neighbors of ops: inputs in argument order, then control; outputs in program order."""

    inputs: list[list[OpId]]
    outputs: list[list[OpId]]
    readers: list[list[tuple[OpId, int]]]
    """(op, index of the read) per buffer, in program order."""
    writers: list[list[OpId]]


def nodes_of(graph: Graph) -> Nodes:
    """Derive edges: an op's inputs are the last writers of its buffers. O(n + e)."""
    writers: list[list[OpId]] = [[] for _ in range(graph.n_buffers)]
    inputs: list[list[OpId]] = []
    outputs: list[list[OpId]] = [[] for _ in range(graph.n_ops)]
    readers: list[list[tuple[OpId, int]]] = [[] for _ in range(graph.n_buffers)]
    for op, (reads, mutates, writes, after) in enumerate(
        zip(graph.reads, graph.mutates, graph.writes, graph.after, strict=True)
    ):
        earlier = [writers[buffer][-1] for buffer in (*reads, *mutates, *writes) if writers[buffer]]
        inputs.append(list(dict.fromkeys(earlier + after)))
        for node in inputs[-1]:
            outputs[node].append(op)
        for read, buffer in enumerate(reads):
            readers[buffer].append((op, read))
        for buffer in dict.fromkeys((*mutates, *writes)):
            writers[buffer].append(op)
    return Nodes(inputs, outputs, readers, writers)


def is_swappable(graph: Graph, nodes: Nodes, buffer: BufferId, forwarding: Collection[str] = FORWARDING_KINDS) -> bool:
    """Return whether Grappler would swap a buffer: in the first space, written once, no persistent one or its view."""
    writers = len(nodes.writers[buffer])
    if graph.buffer_spaces[buffer] or writers > 1 or (writers and graph.exists_at_start[buffer]):
        return False
    while not graph.persistent[buffer]:
        producer = int(graph.structure.producers[buffer])
        if producer < 0 or graph.op_kinds[producer] not in forwarding or not len(graph.reads[producer]):
            return True
        buffer = int(graph.reads[producer][0])
    return False


def relaxed_assignments(graph: Graph, nodes: Nodes) -> list[str]:
    """Return the assignments that need no pinned memory. O(n + e).

    Source: RelaxAllocatorConstraints.
    """
    stays = [True] * graph.n_ops
    for op in range(graph.n_ops - 1, -1, -1):
        same = all(graph.devices[reader] == graph.devices[op] for reader in nodes.outputs[op])
        stays[op] = same and graph.op_kinds[op] not in _SEND_KINDS and all(stays[each] for each in nodes.outputs[op])
    return [
        name
        for name, kind, stay in zip(graph.op_names, graph.op_kinds, stays, strict=True)
        if kind in _ASSIGN_KINDS and stay
    ]
