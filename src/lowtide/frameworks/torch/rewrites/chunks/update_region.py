"""Regions of row-wise ops that turn a gradient into the update of a tensor (`UpdateRegion`)."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import storages_of, value_of
from lowtide.frameworks.torch.internals.operators import op_name, overload_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name, mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.rewrites.split_foreach import FUSED_OPTIMIZERS

EMBEDDING_BACKWARD = torch.ops.aten.embedding_dense_backward.default
_MIN_BYTES = 1 << 20

ARITHMETIC = frozenset(
    ("add", "sub", "rsub", "mul", "div", "sqrt", "reciprocal", "addcmul", "addcdiv", "lerp", *FUSED_OPTIMIZERS)
)
"""Element-wise ops that are bit-equal in float32 and float64 for any number of elements.

CPU kernels compute the last elements, which fill no vector register, with other code. Other functions (powers,
sigmoids) and narrower types round differently there.
"""
EXACT = frozenset(
    ("abs", "neg", "sign", "maximum", "minimum", "clamp", "where", "copy", "clone", "_to_copy", "fill", "zero")
) | frozenset(("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or"))
"""Element-wise ops that are bit-equal in every type."""
_ARITHMETIC_TYPES = (torch.float32, torch.float64)


@dataclass(slots=True, eq=False)
class UpdateRegion:
    """Row-wise nodes. No node outside of the region reads their results, except the tensors that they overwrite."""

    shape: torch.Size
    nodes: list[Node] = field(default_factory=list[Node])
    """In program order. The chunks replace the last one."""


def find_update_regions(graph: Graph) -> list[UpdateRegion]:
    """Return the update regions of a program, in the order of their last nodes.

    A region overwrites an older tensor row by row, and has all nodes that are computed only for that. Its nodes can
    move to the last of them: no node between reads or overwrites tensors that they write. O(nodes and edges).
    """
    order = {node: place for place, node in enumerate(graph.nodes)}
    holders: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for key in storages_of(node):
            holders.setdefault(key, []).append(node)
    found = _row_wise_nodes(graph, order, holders)
    regions = [region for region in _components(found) if _can_move(region, list(order), order)]
    return sorted(regions, key=lambda region: order[region.nodes[-1]])


def _row_wise_nodes(
    graph: Graph, order: Mapping[Node, int], holders: Mapping[int, list[Node]]
) -> dict[Node, torch.Size]:
    """Return the nodes of all regions with their shapes, last ones first."""
    found: dict[Node, torch.Size] = {}
    for node in reversed(list(graph.nodes)):
        shape = row_wise_shape(node) if node.op == "call_function" else None
        if shape is None or shape.numel() * torch.float32.itemsize < _MIN_BYTES:
            continue
        overwritten = storages_of(*nodes_in(mutated_arguments(node)))
        temporary = [holders[key] for key in overwritten if holders[key][0].op not in ("placeholder", "get_attr")]
        updates = len(temporary) < len(overwritten)
        users = [] if updates else list(node.users)
        users += [user for same in temporary for each in same for user in each.users if order[user] > order[node]]
        if (users or updates) and all(
            user.target is not EMBEDDING_BACKWARD and found.get(user) == shape for user in users
        ):
            found[node] = shape
    return found


def _components(found: Mapping[Node, torch.Size]) -> list[UpdateRegion]:
    """Return one region for each set of nodes that read one another or overwrite the same tensor."""
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
    regions: dict[Node, UpdateRegion] = {}
    for node in reversed(list(found)):
        regions.setdefault(lead(node), UpdateRegion(found[node])).nodes.append(node)
    return [region for region in regions.values() if all(found[node] == region.shape for node in region.nodes)]


def _can_move(region: UpdateRegion, nodes: Sequence[Node], order: Mapping[Node, int]) -> bool:
    """Return whether all nodes of a region can move to its last one."""
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


def row_wise_shape(node: Node) -> torch.Size | None:
    """Return the shape of a row-wise node, or None if it is not known to be bit-equal by chunks.

    All its results and the tensors it overwrites have this shape and are contiguous. See `has_rows` for operands.
    """
    if node.target is operator.getitem:
        value, source = value_of(node), node.args[0]
        shape = row_wise_shape(source) if isinstance(source, Node) else None
        return shape if isinstance(value, torch.Tensor) and value.shape == shape else None
    if overload_of(node.target) is None:
        return None
    if node.target is EMBEDDING_BACKWARD:
        return _embedding_shape(node)
    name = op_name(node.target)
    plain = name if name in FUSED_OPTIMIZERS else name.removeprefix("_foreach_").removesuffix("_")
    if plain not in ARITHMETIC and plain not in EXACT:
        return None
    results = [leaf for leaf in pytree.tree_leaves(value_of(node)) if isinstance(leaf, torch.Tensor)]
    results += [tensor for tensor in map(value_of, nodes_in(mutated_arguments(node))) if _is_tensor(tensor)]
    shapes = {tensor.shape for tensor in results}
    if len(shapes) != 1 or len({tensor.device for tensor in results}) != 1:
        return None
    (shape,) = shapes
    if not shape or shape[0] < 2:
        return None
    types = _ARITHMETIC_TYPES if plain in ARITHMETIC else None
    if not all(_is_plain(tensor) and (types is None or tensor.dtype in types) for tensor in results):
        return None
    operands = [value for value in map(value_of, node.all_input_nodes) if _is_tensor(value)]
    fits = all(has_rows(value, shape) or _is_broadcast(value, shape) for value in operands)
    return shape if fits else None


def has_rows(value: Any, shape: torch.Size) -> bool:
    """Return whether an operand has one row for each row of a shape; others are the same for all rows."""
    return isinstance(value, torch.Tensor) and value.dim() == len(shape) and value.shape[0] == shape[0]


def _is_broadcast(value: torch.Tensor, shape: torch.Size) -> bool:
    return value.dim() < len(shape) or value.shape[0] == 1


def _is_plain(tensor: torch.Tensor) -> bool:
    return not is_symbolic(tensor) and tensor.is_contiguous()


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _embedding_shape(node: Node) -> torch.Size | None:
    """Each row of the gradient sums the rows of its tokens in their order, independently of other rows."""
    value: torch.Tensor = value_of(node)
    scaled = arguments_by_name(node).get("scale_grad_by_freq", False)
    return value.shape if _is_plain(value) and not scaled else None
