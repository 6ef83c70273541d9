"""Rewrites that copy inputs before the program overwrites them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.aot_autograd import inputs_overwritten_later
from lowtide.frameworks.torch.internals.nodes import outputs_of, storages_of, value_of
from lowtide.frameworks.torch.internals.tensors import storage_bytes
from lowtide.frameworks.torch.reading.effects import overwritten_nodes
from lowtide.frameworks.torch.reading.lowering import LASTS
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite, call_like

aten = torch.ops.aten


@dataclass(frozen=True)
class SnapshotOverwrittenInputs(Rewrite[tuple[Node, list[Node]]]):
    """Copy every small overwritten input, such as running statistics, for the ops that read it before.

    Those ops can then be recomputed at any time. The copies are never freed: recomputing one would copy the new
    contents.
    """

    name = "snapshot-overwritten-inputs"
    source = "Copy on write, for inputs smaller than the ops that read them."
    largest_bytes: int = 1 << 20

    def sites(self, module: GraphModule) -> Sequence[tuple[Node, list[Node]]]:
        place = {node: index for index, node in enumerate(module.graph.nodes)}
        first_write: dict[Node, int] = {}
        for node in place:
            for written in overwritten_nodes(node):
                first_write.setdefault(written, place[node])
        found: list[tuple[Node, list[Node]]] = []
        for source in module.graph.find_nodes(op="placeholder"):
            readers = [user for user in source.users if place[user] < first_write.get(source, 0)]
            value = value_of(source)
            if readers and isinstance(value, torch.Tensor) and storage_bytes(value) <= self.largest_bytes:
                found.append((source, readers))
        return found

    def apply(self, module: GraphModule, sites: Sequence[tuple[Node, list[Node]]]) -> GraphModule:
        last_input = _last_input(module)
        for source, readers in sites:
            with module.graph.inserting_after(last_input):
                copied = call_like(source, module.graph, aten.clone.default, source)
            copied.meta[LASTS] = True
            for reader in readers:
                reader.replace_input_with(source, copied)
        return module


@dataclass(frozen=True)
class SaveOldContents(Rewrite[int]):
    """Let a forward pass save copies of inputs that are overwritten before the backward pass.

    PyTorch's partitioner recomputes ops even from overwritten inputs, which gives wrong gradients or errors.
    """

    name = "save-old-contents"
    source = "Copy on write, for tensors that the backward pass reads."
    preserves = Preserves("saved values that the program overwrites after it read them", outputs=False)
    n_outputs: int

    def sites(self, module: GraphModule) -> Sequence[int]:
        written = [node for call in module.graph.nodes for node in overwritten_nodes(call)]
        written += inputs_overwritten_later(module, self.n_outputs)
        overwritten = storages_of(*written) & storages_of(*module.graph.find_nodes(op="placeholder"))
        results = outputs_of(module)
        return [place for place in range(self.n_outputs, len(results)) if storages_of(results[place]) & overwritten]

    def apply(self, module: GraphModule, sites: Sequence[int]) -> GraphModule:
        graph = module.graph
        last_input = _last_input(module)
        (end,) = graph.find_nodes(op="output")
        results = outputs_of(module)
        for place in sites:
            saved: Node = results[place]
            with graph.inserting_after(last_input if saved.op == "placeholder" else saved):
                results[place] = call_like(saved, graph, aten.clone.default, saved)
        end.args = (tuple(results),)
        return module


def _last_input(module: GraphModule) -> Node:
    return list(module.graph.find_nodes(op="placeholder"))[-1]
