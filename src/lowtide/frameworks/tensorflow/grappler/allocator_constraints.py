"""Which assignments need no pinned memory, as Grappler finds it."""

from lowtide.engine.graph import Graph
from lowtide.frameworks.tensorflow.grappler.kinds import ASSIGN_KINDS, SEND_KINDS
from lowtide.frameworks.tensorflow.grappler.nodes import Nodes


def relaxed_assignments(graph: Graph, nodes: Nodes) -> list[str]:
    """Return the names of the assignments whose result may lie in any memory of their device.

    Such is an assignment where everything that depends on it runs on that device too, and none of it sends.
    Source: memory_optimizer.cc of TensorFlow, RelaxAllocatorConstraints. O(n + e).
    """
    stays = [True] * graph.n_ops
    for op in range(graph.n_ops - 1, -1, -1):
        same = all(graph.devices[reader] == graph.devices[op] for reader in nodes.outputs[op])
        stays[op] = same and graph.op_kinds[op] not in SEND_KINDS and all(stays[reader] for reader in nodes.outputs[op])
    return [
        name
        for name, kind, stay in zip(graph.op_names, graph.op_kinds, stays, strict=True)
        if kind in ASSIGN_KINDS and stay
    ]
