"""Small inputs that a program overwrites, such as running statistics, are read through a copy of what they held before.

An op may run again only while what it reads is still there. Batch normalization reads its running statistics and the
program overwrites them right after: read through a copy of a few bytes, the op can run again at any time, and the
statistics are still updated once. The copies stay to the end: made again they would hold what came after.
"""

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.effects import mutated_arguments
from lowtide.frameworks.torch.lowering import LASTS, nodes_in
from lowtide.frameworks.torch.torch_internals import another_like, storage_bytes, value_of

_LARGEST_BYTES = 1 << 20


def snapshot_overwritten_inputs(graph: Graph) -> None:
    """Let every reader of a small input before its first overwriting read a copy made at the start."""
    nodes = list(graph.nodes)
    place = {node: index for index, node in enumerate(nodes)}
    inputs = graph.find_nodes(op="placeholder")
    first_write: dict[Node, int] = {}
    for node in nodes:
        for written in nodes_in(mutated_arguments(node)):
            first_write.setdefault(written, place[node])
    for source in inputs:
        value = value_of(source)
        readers = [user for user in source.users if place[user] < first_write.get(source, 0)]
        if not readers or not _is_small(value):
            continue
        with graph.inserting_after(inputs[-1]):
            copied = graph.call_function(torch.ops.aten.clone.default, (source,))
        copied.meta = {**source.meta, "val": another_like(value), LASTS: True}
        for reader in readers:
            reader.replace_input_with(source, copied)


def _is_small(value: object) -> bool:
    return isinstance(value, torch.Tensor) and storage_bytes(value) <= _LARGEST_BYTES
