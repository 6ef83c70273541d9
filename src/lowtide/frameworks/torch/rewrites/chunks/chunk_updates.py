"""A rewrite that computes update regions by chunks of rows (`ChunkUpdates`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import map_nodes, value_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name, mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.rewrites.chunks.rule import argument_of, normalize_dims
from lowtide.frameworks.torch.rewrites.chunks.update_region import EMBEDDING_BACKWARD, UpdateRegion, has_rows
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, origin_of

aten = torch.ops.aten


@dataclass(frozen=True)
class ChunkUpdates(Rewrite[tuple[UpdateRegion, int]]):
    """Unroll update regions into chunks, so that gradients and temporaries are freed chunk by chunk."""

    name = "in-chunks"
    source = "Row-wise ops give the same bits for some rows as for all; tests found out which ops are row-wise."
    chosen: tuple[tuple[UpdateRegion, int], ...]
    """The regions, each with the rows of a chunk; see `choose_update_chunks`."""

    def sites(self, module: GraphModule) -> Sequence[tuple[UpdateRegion, int]]:
        """Return the chosen regions."""
        return self.chosen

    def apply(self, module: GraphModule, sites: Sequence[tuple[UpdateRegion, int]]) -> GraphModule:
        """Return a copy with chunks in place of the last node of each region."""
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
        return GraphModule(module, graph)


def _append_chunks(graph: Graph, region: UpdateRegion, count: int, made: dict[Node, Node]) -> None:
    rows = region.shape[0]
    for first in range(0, rows, count):
        chunk = _UpdateChunk(graph, made, region.shape, first, min(first + count, rows), {}, {})
        for node in region.nodes:
            chunk.add(node)
    for node in region.nodes:  # others read the tensor that the region has overwritten
        overwritten = nodes_in(mutated_arguments(node))
        if overwritten and overwritten[0] in made:
            made[node] = made[overwritten[0]]


def _erase_unread(graph: Graph, made: Mapping[Node, Node], regions: Iterable[UpdateRegion]) -> None:
    """Erase concatenations whose operands the chunks read instead."""
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
        """Append a node of the region for the rows of this chunk."""
        if node.target is EMBEDDING_BACKWARD:
            self.computed[node] = self._embedding(node)
            return
        args, kwargs = map_nodes((node.args, dict(node.kwargs)), self._operand)
        self.computed[node] = self._call(node, node.target, args, kwargs)

    def _operand(self, node: Node) -> Node:
        if node in self.computed:
            return self.computed[node]
        operand = self.made[node]
        if not has_rows(value_of(node), self.shape):
            return operand
        if node not in self.slices:
            chunk = _concatenated_chunk(operand, self.first, self.last)
            self.slices[node] = self._slice(operand, self.first, self.last) if chunk is None else chunk
        return self.slices[node]

    def _slice(self, node: Node, first: int, last: int) -> Node:
        rows = self.graph.call_function(aten.slice.Tensor, (node, 0, first, last))
        rows.meta = origin_of(node)
        return rows

    def _call(self, like: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Node:
        name = f"{like.name}_from_{self.first}"
        done = self.graph.create_node("call_function", target, tuple(args), dict(kwargs), name=name)
        done.meta = origin_of(like)
        return done

    def _embedding(self, node: Node) -> Node:
        """Sum the gradients of the tokens of this chunk. Tokens of other chunks go to an extra first or last row."""
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
    """Return a node and the nodes it is an alias of, up to the first that is not an alias."""
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
    """Return the tensors whose rows a tensor concatenates; empty if it is no concatenation of rows."""
    base = view_chain(node)[-1]
    if base.target is not aten.cat.default:
        return []
    dims = normalize_dims(argument_of(base, "dim"), value_of(base.all_input_nodes[0]).dim())
    return base.all_input_nodes if dims == (0,) else []


def _concatenated_chunk(node: Node, first: int, last: int) -> Node | None:
    """Return the operand of a concatenation that has exactly these rows, or None if there is none."""
    start = 0
    for chunk in concatenated_chunks(node):
        end = start + value_of(chunk).shape[0]
        if (start, end) == (first, last):
            return chunk
        start = end
    return None
