"""Regions from a gradient to the update of a tensor, and their chunks."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.hints import is_symbolic
from lowtide.frameworks.torch.internals.nodes import graph_module, map_arguments, storages_of, value_of
from lowtide.frameworks.torch.internals.operators import op_name, overload_of
from lowtide.frameworks.torch.internals.pytree import tensors_in
from lowtide.frameworks.torch.reading.effects import (
    arguments_by_name,
    overwritten_nodes,
    overwritten_storages,
    touched_storages,
)
from lowtide.frameworks.torch.rewrites.chunks.rule import argument_of, normalize_dims
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like, origin_of
from lowtide.frameworks.torch.rewrites.split_ops import FUSED_OPTIMIZERS

aten = torch.ops.aten
EMBEDDING_BACKWARD = aten.embedding_dense_backward.default
_MIN_BYTES = 1 << 20

ARITHMETIC = frozenset(
    ("add", "sub", "rsub", "mul", "div", "sqrt", "reciprocal", "addcmul", "addcdiv", "lerp", *FUSED_OPTIMIZERS)
)
"""Element-wise ops that are bit-equal in float32 and float64 for any number of elements.

CPU kernels compute the last elements with other code, which rounds powers, sigmoids and narrower types differently.
"""
EXACT = frozenset(
    ("abs", "neg", "sign", "maximum", "minimum", "clamp", "where", "copy", "clone", "_to_copy", "fill", "zero")
) | frozenset(("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or"))
"""Element-wise ops bit-equal in every type."""
_ARITHMETIC_TYPES = (torch.float32, torch.float64)


@dataclass(slots=True, eq=False)
class UpdateRegion:
    """Row-wise nodes. Other nodes read only the tensors that they overwrite."""

    shape: torch.Size
    nodes: list[Node] = field(default_factory=list[Node])
    """In program order; chunks replace the last."""


def find_update_regions(graph: Graph) -> list[UpdateRegion]:
    """Return the update regions of a program, in the order of their last nodes.

    A region overwrites an older tensor row by row, with all nodes computed only for that. O(nodes and edges).
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
    found: dict[Node, torch.Size] = {}
    for node in reversed(list(graph.nodes)):
        shape = row_wise_shape(node) if node.op == "call_function" else None
        if shape is None or shape.numel() * torch.float32.itemsize < _MIN_BYTES:
            continue
        overwritten = overwritten_storages(node)
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
        for key in overwritten_storages(node):
            leader[lead(writer.setdefault(key, node))] = lead(node)
    regions: dict[Node, UpdateRegion] = {}
    for node in reversed(list(found)):
        regions.setdefault(lead(node), UpdateRegion(found[node])).nodes.append(node)
    return [region for region in regions.values() if all(found[node] == region.shape for node in region.nodes)]


def _can_move(region: UpdateRegion, nodes: Sequence[Node], order: Mapping[Node, int]) -> bool:
    inside = set(region.nodes)
    touched: set[int] = set()
    written: set[int] = set()
    for node in nodes[order[region.nodes[0]] : order[region.nodes[-1]] + 1]:
        overwritten = overwritten_storages(node)
        everything = touched_storages(node)
        if node in inside:
            touched |= everything
            written |= overwritten
        elif everything & written or overwritten & touched:
            return False
    return True


def row_wise_shape(node: Node) -> torch.Size | None:
    """Return the shape of a row-wise node, or None unless chunks are known to be bit-equal."""
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
    results = tensors_in([value_of(each) for each in (node, *overwritten_nodes(node))])
    shapes = {tensor.shape for tensor in results}
    if len(shapes) != 1 or len({tensor.device for tensor in results}) != 1:
        return None
    (shape,) = shapes
    if not shape or shape[0] < 2:
        return None
    types = _ARITHMETIC_TYPES if plain in ARITHMETIC else None
    if not all(_is_plain(tensor) and (types is None or tensor.dtype in types) for tensor in results):
        return None
    operands = [value for value in map(value_of, node.all_input_nodes) if isinstance(value, torch.Tensor)]
    is_broadcast = (value.dim() < len(shape) or value.shape[0] == 1 for value in operands if not has_rows(value, shape))
    return shape if all(is_broadcast) else None


def has_rows(value: Any, shape: torch.Size) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == len(shape) and value.shape[0] == shape[0]


def _is_plain(tensor: torch.Tensor) -> bool:
    return not is_symbolic(tensor) and tensor.is_contiguous()


def _embedding_shape(node: Node) -> torch.Size | None:
    """Rows of the gradient sum the rows of their tokens, in order."""
    value: torch.Tensor = value_of(node)
    scaled = arguments_by_name(node).get("scale_grad_by_freq", False)
    return value.shape if _is_plain(value) and not scaled else None


@dataclass(frozen=True)
class ChunkUpdates(Rewrite[tuple[UpdateRegion, int]]):
    """Unroll update regions into chunks, to free gradients chunk by chunk."""

    name = "in-chunks"
    source = "Tests found which ops give the same bits for some rows as for all."
    chosen: tuple[tuple[UpdateRegion, int], ...]

    def sites(self, module: GraphModule) -> Sequence[tuple[UpdateRegion, int]]:
        return self.chosen

    def apply(self, module: GraphModule, sites: Sequence[tuple[UpdateRegion, int]]) -> GraphModule:
        rows_of = dict(sites)
        region_of = {node: region for region in rows_of for node in region.nodes}
        graph = Graph()
        made: dict[Node, Node] = {}
        for node in module.graph.nodes:
            region = region_of.get(node)
            if region is None:
                made[node] = graph.node_copy(node, made.__getitem__)
            elif node is region.nodes[-1]:
                _append_chunks(graph, region, rows_of[region], made)
        _erase_unread(graph, made, rows_of)
        return graph_module(module, graph)


def _append_chunks(graph: Graph, region: UpdateRegion, count: int, made: dict[Node, Node]) -> None:
    rows = region.shape[0]
    for first in range(0, rows, count):
        chunk = _UpdateChunk(graph, made, region.shape, first, min(first + count, rows), {}, {})
        for node in region.nodes:
            chunk.add(node)
    for node in region.nodes:  # others read the overwritten tensor
        overwritten = overwritten_nodes(node)
        if overwritten and overwritten[0] in made:
            made[node] = made[overwritten[0]]


def _erase_unread(graph: Graph, made: Mapping[Node, Node], regions: Iterable[UpdateRegion]) -> None:
    sources = dict.fromkeys(source for region in regions for node in region.nodes for source in node.all_input_nodes)
    for source in sources:
        for node in view_chain(made[source]) if source in made and concatenated_chunks(made[source]) else ():
            if not node.users:
                graph.erase_node(node)


@dataclass(frozen=True, slots=True)
class _UpdateChunk:
    graph: Graph
    made: Mapping[Node, Node]
    shape: torch.Size
    first: int
    last: int
    computed: dict[Node, Node]
    slices: dict[Node, Node]

    def add(self, node: Node) -> None:
        if node.target is EMBEDDING_BACKWARD:
            self.computed[node] = self._embedding(node)
            return
        args, kwargs = map_arguments(node, self._operand)
        self.computed[node] = self._call(node, node.target, args, kwargs)

    def _operand(self, node: Node) -> Node:
        if node in self.computed:
            return self.computed[node]
        operand = self.made[node]
        if not has_rows(value_of(node), self.shape):
            return operand
        if node not in self.slices:
            chunk = _concatenated_chunk(operand, self.first, self.last)
            self.slices[node] = chunk or self._slice(operand, self.first, self.last)
        return self.slices[node]

    def _slice(self, node: Node, first: int, last: int) -> Node:
        return call_like(node, self.graph, aten.slice.Tensor, node, 0, first, last)

    def _call(self, like: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Node:
        name = f"{like.name}_from{self.first}"  # releases of PyTorch count up other digits after "_"
        done = self.graph.create_node("call_function", target, tuple(args), dict(kwargs), name=name)
        done.meta = origin_of(like)
        return done

    def _embedding(self, node: Node) -> Node:
        """Sum the gradients of this chunk's tokens; others go to an extra first or last row."""
        given = arguments_by_name(node)
        gradient, indices = self.made[given["grad_output"]], self.made[given["indices"]]
        padding: int = given["padding_idx"]
        rows = self.last - self.first
        moved = self._call(node, aten.sub.Tensor, (indices, self.first - 1), {})
        kept = self._call(node, aten.clamp.default, (moved, 0, rows + 1), {})
        ignored = padding - self.first + 1 if self.first <= padding < self.last else 0
        summed = self._call(node, EMBEDDING_BACKWARD, (gradient, kept, rows + 2, ignored, False), {})
        return self._slice(summed, 1, rows + 1)


def view_chain(node: Node) -> list[Node]:
    """Return a node, its alias source, and so on."""
    found = [node]
    while True:
        target, source = found[-1].target, found[-1].args[0] if found[-1].args else None
        if target in (aten.alias.default, aten.detach.default) and isinstance(source, Node):
            found.append(source)
        elif target is aten.t.default and isinstance(source, Node) and source.target is aten.t.default:
            found += [source, *source.all_input_nodes]
        else:
            return found


def concatenated_chunks(node: Node) -> list[Node]:
    """Return the operands of a concatenation of rows, or an empty list."""
    base = view_chain(node)[-1]
    if base.target is not aten.cat.default:
        return []
    dims = normalize_dims(argument_of(base, "dim"), value_of(base.all_input_nodes[0]).dim())
    return base.all_input_nodes if dims == (0,) else []


def _concatenated_chunk(node: Node, first: int, last: int) -> Node | None:
    start = 0
    for chunk in concatenated_chunks(node):
        end = start + value_of(chunk).shape[0]
        if (start, end) == (first, last):
            return chunk
        start = end
    return None
