"""Regions under `torch.utils.checkpoint`, carried out as the user chose them."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.aot_autograd import checkpoint_region, must_recompute
from lowtide.frameworks.torch.internals.nodes import storages_of
from lowtide.frameworks.torch.reading.effects import keeps_order, mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, origin_of

REPEATED = "lowtide_repeated"
"""Marks, in their meta data, the nodes of the backward pass that run again what a forward node ran."""


@dataclass(frozen=True)
class RepeatCheckpointed(Rewrite[Node]):
    """Let the backward pass of a joint graph with a boundary read its own copies of what checkpointed regions compute.

    The inputs of a region are saved, and so is what the caller holds, what a later region takes, and what may not run
    twice, such as random draws. Every other node of a region is copied to where the backward pass first needs it.
    O(nodes and edges).
    """

    name = "repeat-checkpointed"
    source = "`torch.utils.checkpoint`, which runs a region again when the backward pass reaches it."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        """Return the nodes of the forward pass that the backward pass may run again."""
        nodes = list(module.graph.nodes)
        cut = _cut_of(nodes)
        last_write = {
            storage: place
            for place in range(cut + 1)
            for storage in storages_of(*nodes_in(mutated_arguments(nodes[place])))
        }
        return [
            node
            for place, node in enumerate(nodes[:cut])
            if _may_be_repeated(node)
            and all(last_write.get(storage, 0) <= place for storage in storages_of(*node.all_input_nodes))
        ]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        """Put every copy before the first node of the backward pass that needs it."""
        graph, repeatable = module.graph, set(sites)
        nodes = list(graph.nodes)
        places = {node: place for place, node in enumerate(nodes)}
        copies: dict[Node, Node] = {}
        for node in nodes[_cut_of(nodes) + 1 :]:
            for source in sorted(_missing(node, repeatable, copies), key=places.__getitem__):
                with graph.inserting_before(node):
                    copies[source] = graph.node_copy(source, lambda argument: copies.get(argument, argument))
                copies[source].meta = {**origin_of(source), REPEATED: True}
            for source in node.all_input_nodes:
                if source in copies:
                    node.replace_input_with(source, copies[source])
        return module


def _cut_of(nodes: Sequence[Node]) -> int:
    return next((place for place, node in enumerate(nodes) if node.target is TURN_BACK), 0)


def _missing(node: Node, repeatable: set[Node], copied: Container[Node]) -> set[Node]:
    """Return what is still to be copied so that a node reads nothing of the forward pass that can be made again."""
    missing: set[Node] = set()
    waiting = list(node.all_input_nodes)
    while waiting:
        source = waiting.pop()
        if source in repeatable and source not in copied and source not in missing:
            missing.add(source)
            waiting.extend(source.all_input_nodes)
    return missing


def _may_be_repeated(node: Node) -> bool:
    if not must_recompute(node) or keeps_order(node) or mutated_arguments(node):
        return False
    region = checkpoint_region(node)
    return all(user.target is not TURN_BACK and not _is_of_later_region(user, region) for user in node.users)


def _is_of_later_region(user: Node, region: int) -> bool:
    return must_recompute(user) and checkpoint_region(user) > region
