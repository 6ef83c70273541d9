"""A graph as Grappler sees it: nodes joined by edges of data and control."""

from collections.abc import Collection
from dataclasses import dataclass

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph
from lowtide.frameworks.tensorflow.grappler.kinds import FORWARDING_KINDS


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The neighbors of every op, without repeats: inputs in argument order, then control; outputs in program order."""

    inputs: list[list[OpId]]
    outputs: list[list[OpId]]
    readers: list[list[tuple[OpId, int]]]
    """Per buffer, (op, which of its reads) in program order."""
    writers: list[list[OpId]]
    """Per buffer, the ops that write or mutate it, in program order."""


def nodes_of(graph: Graph) -> Nodes:
    """Derive the edges: an op's inputs are the last writers before it of what it reads or writes. O(n + e)."""
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
    """Return whether Grappler would swap a buffer of the first memory space.

    It must not be persistent, nor another name of one that is, by ops whose kind is in `forwarding`. Beyond Grappler,
    which knows no mutation but that of references, it must be written only once.
    """
    writers = len(nodes.writers[buffer])
    if graph.buffer_spaces[buffer] or writers > 1 or (writers and graph.exists_at_start[buffer]):
        return False
    while not graph.persistent[buffer]:
        producer = int(graph.structure.producers[buffer])
        if producer < 0 or graph.op_kinds[producer] not in forwarding or not len(graph.reads[producer]):
            return True
        buffer = int(graph.reads[producer][0])
    return False
