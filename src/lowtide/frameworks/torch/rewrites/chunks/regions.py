"""The parts of a program that can be done in chunks: what turns a tensor's gradient into its update."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals.nodes import storages_of
from lowtide.frameworks.torch.reading.effects import mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.rewrites.chunks.row_wise import EMBEDDING_BACKWARD, shape_by_rows

_FEWEST_BYTES = 1 << 20
"""Smaller updates need little, and are many."""


@dataclass(slots=True, eq=False)
class Region:
    """Row-wise nodes; nobody else reads their results, except what they overwrite."""

    shape: torch.Size
    nodes: list[Node] = field(default_factory=list[Node])
    """In program order; the chunks stand where the last one stood."""


def find_regions(graph: Graph) -> list[Region]:
    """Return the regions of a program, in the order of their last nodes.

    A region overwrites something that exists before it, row by row, and holds all that is computed for that alone. Its
    nodes can stand together where the last of them stands: nothing between them touches what they write, or writes what
    they touch. O(nodes and edges).
    """
    order = {node: place for place, node in enumerate(graph.nodes)}
    holders: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for key in storages_of(node):
            holders.setdefault(key, []).append(node)
    found = _row_wise(graph, order, holders)
    regions = [region for region in _components(found) if _is_free(region, list(order), order)]
    return sorted(regions, key=lambda region: order[region.nodes[-1]])


def _row_wise(graph: Graph, order: Mapping[Node, int], holders: Mapping[int, list[Node]]) -> dict[Node, torch.Size]:
    """Return the nodes of all regions with their shapes, last ones first."""
    found: dict[Node, torch.Size] = {}
    for node in reversed(list(graph.nodes)):
        shape = shape_by_rows(node) if node.op == "call_function" else None
        if shape is None or shape.numel() * torch.float32.itemsize < _FEWEST_BYTES:
            continue
        overwritten = storages_of(*nodes_in(mutated_arguments(node)))
        temporary = [holders[key] for key in overwritten if holders[key][0].op not in ("placeholder", "get_attr")]
        updates = len(temporary) < len(overwritten)
        users = [] if updates else list(node.users)
        users += [user for same in temporary for each in same for user in each.users if order[user] > order[node]]
        if (users or updates) and all(_takes_rows(user) and found.get(user) == shape for user in users):
            found[node] = shape
    return found


def _takes_rows(user: Node) -> bool:
    return user.target is not EMBEDDING_BACKWARD


def _components(found: Mapping[Node, torch.Size]) -> list[Region]:
    """Part the nodes into those that read one another or overwrite the same."""
    leader: dict[Node, Node] = {node: node for node in found}

    def lead(node: Node) -> Node:
        while leader[node] is not node:
            leader[node] = node = leader[leader[node]]
        return node

    writer: dict[int, Node] = {}
    for node in found:
        for source in node.all_input_nodes:
            if source in leader:
                leader[lead(source)] = lead(node)
        for key in storages_of(*nodes_in(mutated_arguments(node))):
            leader[lead(writer.setdefault(key, node))] = lead(node)
    regions: dict[Node, Region] = {}
    for node in reversed(list(found)):
        regions.setdefault(lead(node), Region(found[node])).nodes.append(node)
    return [region for region in regions.values() if all(found[node] == region.shape for node in region.nodes)]


def _is_free(region: Region, nodes: Sequence[Node], order: Mapping[Node, int]) -> bool:
    """Tell whether the nodes can wait for the last of them."""
    inside = set(region.nodes)
    touched: set[int] = set()
    written: set[int] = set()
    for node in nodes[order[region.nodes[0]] : order[region.nodes[-1]] + 1]:
        overwritten = storages_of(*nodes_in(mutated_arguments(node)))
        everything = storages_of(node, *node.all_input_nodes)
        if node in inside:
            touched |= everything
            written |= overwritten
        elif everything & written or overwritten & touched:
            return False
    return True
