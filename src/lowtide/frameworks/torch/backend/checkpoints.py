"""Regions under `torch.utils.checkpoint`: without a budget the user's choice of what runs again is carried out.

With a budget the choice is lowtide's, and of the user's only what a selective policy says must be saved is kept.
"""

import operator
from collections.abc import Container

from torch.fx import Graph, Node

from lowtide.frameworks.torch.backend.boundary import TURN_BACK
from lowtide.frameworks.torch.backend.compiler_internals import (
    checkpoint_region,
    compute_fake,
    mark_must_save,
    must_recompute,
)
from lowtide.frameworks.torch.effects import is_random, keeps_order, mutated_arguments
from lowtide.frameworks.torch.lowering import nodes_in
from lowtide.frameworks.torch.torch_internals import storages_of

REPEATED = "lowtide_repeated"
"""In the meta data of nodes that run in the backward pass what a forward node ran already."""


def has_checkpoints(graph: Graph) -> bool:
    """Tell whether the user marked anything to be run again in the backward pass."""
    return any(must_recompute(node) for node in graph.nodes)


def leave_to_plan(graph: Graph) -> None:
    """Forget what the user marked to be run again, so that only the plan says what does."""
    for node in graph.nodes:
        if must_recompute(node):
            del node.meta["recompute"]


def save_draws(graph: Graph) -> None:
    """Have the random draws within checkpointed regions saved: PyTorch would draw again from a saved random state."""
    for node in graph.nodes:
        if must_recompute(node) and is_random(node):
            for drawn in (node, *(user for user in node.users if user.target is operator.getitem)):
                mark_must_save(drawn)


def repeat_checkpointed(graph: Graph) -> None:
    """Let the backward pass of a joint graph with a boundary read its own copies of what checkpointed regions compute.

    Saved are the inputs of a region, what the caller holds or a later region takes, random draws, and what else may
    not run twice; everything between is copied to where the backward pass first needs it. O(nodes and edges).
    """
    nodes = list(graph.nodes)
    places = {node: place for place, node in enumerate(nodes)}
    cut = next(place for place, node in enumerate(nodes) if node.target is TURN_BACK)
    last_write = {
        storage: place
        for place in range(cut + 1)
        for storage in storages_of(*nodes_in(mutated_arguments(nodes[place])))
    }
    repeatable = {
        node
        for place, node in enumerate(nodes[:cut])
        if _may_be_repeated(node)
        and all(last_write.get(storage, 0) <= place for storage in storages_of(*node.all_input_nodes))
    }
    if not repeatable:
        return
    copies: dict[Node, Node] = {}
    outdated: set[int] = set()
    """Storages of what was copied: who looks at one of them in the backward pass looks at the copy's now."""
    for node in nodes[cut + 1 :]:
        for source in sorted(_missing(node, repeatable, copies), key=places.__getitem__):
            with graph.inserting_before(node):
                copies[source] = graph.node_copy(source, lambda argument: copies.get(argument, argument))
            outdated |= storages_of(source)
            copies[source].meta |= {REPEATED: True, "val": compute_fake(copies[source])}
        for source in node.all_input_nodes:
            if source in copies:
                node.replace_input_with(source, copies[source])
        if storages_of(node) & outdated and node.op == "call_function":
            node.meta["val"] = compute_fake(node)


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
