"""Checkpointed parts of a program, recomputed as the user chose."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.internals.aot_autograd import checkpoint_region, must_recompute
from lowtide.frameworks.torch.internals.nodes import storages_of
from lowtide.frameworks.torch.reading.effects import keeps_order, mutated_arguments, overwritten_storages
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, origin_of

REPEATED = "lowtide_repeated"


@dataclass(frozen=True)
class RepeatCheckpointed(Rewrite[Node]):
    """Recompute checkpointed nodes in the backward pass of a joint graph with a boundary.

    Saved are a checkpoint's inputs, results that the caller or a later checkpoint reads, and results of ops that must
    not run twice. O(nodes and edges).
    """

    name = "repeat-checkpointed"
    source = "`torch.utils.checkpoint`, which recomputes in the backward pass."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        nodes = list(module.graph.nodes)
        boundary = _boundary_place(nodes)
        last_write = {storage: place for place in range(boundary + 1) for storage in overwritten_storages(nodes[place])}
        return [
            node
            for place, node in enumerate(nodes[:boundary])
            if _may_be_repeated(node)
            and all(last_write.get(storage, 0) <= place for storage in storages_of(*node.all_input_nodes))
        ]

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        graph, repeatable = module.graph, set(sites)
        nodes = list(graph.nodes)
        places = {node: place for place, node in enumerate(nodes)}
        copies: dict[Node, Node] = {}
        for node in nodes[_boundary_place(nodes) + 1 :]:
            for source in sorted(_missing(node, repeatable, copies), key=places.__getitem__):
                with graph.inserting_before(node):
                    copies[source] = graph.node_copy(source, lambda argument: copies.get(argument, argument))
                copies[source].meta = {**origin_of(source), REPEATED: True}
            for source in node.all_input_nodes:
                if source in copies:
                    node.replace_input_with(source, copies[source])
        return module


def _boundary_place(nodes: Sequence[Node]) -> int:
    return next((place for place, node in enumerate(nodes) if node.target is TURN_BACK), 0)


def _missing(node: Node, repeatable: set[Node], copied: Container[Node]) -> set[Node]:
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
    checkpoint = checkpoint_region(node)
    return not any(
        user.target is TURN_BACK or (must_recompute(user) and checkpoint_region(user) > checkpoint)
        for user in node.users
    )
