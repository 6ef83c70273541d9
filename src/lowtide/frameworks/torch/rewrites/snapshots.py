"""Small inputs that a program overwrites, such as running statistics, are read through a copy of what they held before.

An op may run again only while what it reads is still there. Batch normalization reads its running statistics, and the
program overwrites them right after. Through a copy of a few bytes, the op can run again at any time, and the statistics
are still updated once. The copies stay to the end: if they were rematerialized, they would hold the new contents.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.tensors import storage_bytes
from lowtide.frameworks.torch.reading.effects import mutated_arguments
from lowtide.frameworks.torch.reading.lowering import LASTS, nodes_in
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, origin_of


@dataclass(frozen=True)
class SnapshotOverwrittenInputs(Rewrite[tuple[Node, list[Node]]]):
    """Make a copy of every small input at the start, for the ops that read it before it is first overwritten."""

    name = "snapshot-overwritten-inputs"
    source = "Copy on write, for inputs that take less than what reads them."
    largest_bytes: int = 1 << 20
    """Larger inputs are left as they are."""

    def sites(self, module: GraphModule) -> Sequence[tuple[Node, list[Node]]]:
        """Return the small inputs that are overwritten, each with the ops that read it before."""
        place = {node: index for index, node in enumerate(module.graph.nodes)}
        first_write: dict[Node, int] = {}
        for node in place:
            for written in nodes_in(mutated_arguments(node)):
                first_write.setdefault(written, place[node])
        found: list[tuple[Node, list[Node]]] = []
        for source in module.graph.find_nodes(op="placeholder"):
            readers = [user for user in source.users if place[user] < first_write.get(source, 0)]
            value = value_of(source)
            if readers and isinstance(value, torch.Tensor) and storage_bytes(value) <= self.largest_bytes:
                found.append((source, readers))
        return found

    def apply(self, module: GraphModule, sites: Sequence[tuple[Node, list[Node]]]) -> GraphModule:
        """Put the copies behind the inputs."""
        last_input = list(module.graph.find_nodes(op="placeholder"))[-1]
        for source, readers in sites:
            with module.graph.inserting_after(last_input):
                copied = module.graph.call_function(torch.ops.aten.clone.default, (source,))
            copied.meta = {**origin_of(source), LASTS: True}
            for reader in readers:
                reader.replace_input_with(source, copied)
        return module
