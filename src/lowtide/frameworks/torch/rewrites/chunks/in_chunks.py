"""The updates of the largest tensors, done in chunks of rows: gradients and temporaries die chunk by chunk."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import map_nodes, value_of
from lowtide.frameworks.torch.reading.effects import arguments_by_name, mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.rewrites.chunks.pieces import looked_at, piece_of_rows, pieces_of
from lowtide.frameworks.torch.rewrites.chunks.regions import Region
from lowtide.frameworks.torch.rewrites.chunks.row_wise import EMBEDDING_BACKWARD, is_cut
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, origin_of

aten = torch.ops.aten


@dataclass(frozen=True)
class InChunks(Rewrite[tuple[Region, int]]):
    """Write some regions as loops over chunks of their rows, unrolled."""

    name = "in-chunks"
    source = "Ops that treat every row alone give the same bits for some rows as for all; tests found which do."
    chosen: tuple[tuple[Region, int], ...]
    """The regions, each with the rows of a chunk; see `choose_chunks`."""

    def sites(self, module: GraphModule) -> Sequence[tuple[Region, int]]:
        """Return the chosen regions."""
        return self.chosen

    def apply(self, module: GraphModule, sites: Sequence[tuple[Region, int]]) -> GraphModule:
        """Return a copy in which each region stands, chunk by chunk, where its last node stood."""
        rows_of = dict(sites)
        region_of = {node: region for region in rows_of for node in region.nodes}
        graph = Graph()
        made: dict[Node, Node] = {}
        for node in module.graph.nodes:
            region = region_of.get(node)
            if region is None:
                made[node] = graph.node_copy(node, made.__getitem__)
            elif node is region.nodes[-1]:
                _write(graph, region, rows_of[region], made)
        _drop_unread(graph, made, rows_of)
        return GraphModule(module, graph)


def _write(graph: Graph, region: Region, count: int, made: dict[Node, Node]) -> None:
    rows = region.shape[0]
    for first in range(0, rows, count):
        chunk = _Chunk(graph, made, region.shape, first, min(first + count, rows), {}, {})
        for node in region.nodes:
            chunk.add(node)
    for node in region.nodes:  # whoever reads what was overwritten finds it where it always was
        overwritten = nodes_in(mutated_arguments(node))
        if overwritten and overwritten[0] in made:
            made[node] = made[overwritten[0]]


def _drop_unread(graph: Graph, made: Mapping[Node, Node], regions: Iterable[Region]) -> None:
    """Erase what is put together of pieces, where all chunks take the pieces themselves."""
    sources = dict.fromkeys(source for region in regions for node in region.nodes for source in node.all_input_nodes)
    for source in sources:
        for node in looked_at(made[source]) if source in made and pieces_of(made[source]) else ():
            if not node.users:
                graph.erase_node(node)


@dataclass(frozen=True, slots=True)
class _Chunk:
    graph: Graph
    made: Mapping[Node, Node]
    shape: torch.Size
    first: int
    last: int
    computed: dict[Node, Node]
    cut: dict[Node, Node]

    def add(self, node: Node) -> None:
        """Append what a node of the region does to the rows of this chunk."""
        if node.target is EMBEDDING_BACKWARD:
            self.computed[node] = self._embedding(node)
            return
        args, kwargs = map_nodes((node.args, dict(node.kwargs)), self._operand)
        self.computed[node] = self._call(node, node.target, args, kwargs)

    def _operand(self, node: Node) -> Node:
        if node in self.computed:
            return self.computed[node]
        whole = self.made[node]
        if not is_cut(value_of(node), self.shape):
            return whole
        if node not in self.cut:
            piece = piece_of_rows(whole, self.first, self.last)
            self.cut[node] = self._rows_of(whole, self.first, self.last) if piece is None else piece
        return self.cut[node]

    def _rows_of(self, node: Node, first: int, last: int) -> Node:
        rows = self.graph.call_function(aten.slice.Tensor, (node, 0, first, last))
        rows.meta = origin_of(node)
        return rows

    def _call(self, like: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Node:
        name = f"{like.name}_from_{self.first}"
        done = self.graph.create_node("call_function", target, tuple(args), dict(kwargs), name=name)
        done.meta = origin_of(like)
        return done

    def _embedding(self, node: Node) -> Node:
        """Sum the gradients of the tokens of this chunk: the first row is for tokens before it, the last for others."""
        given = arguments_by_name(node)
        gradient, indices = self.made[given["grad_output"]], self.made[given["indices"]]
        padding: int = given["padding_idx"]
        rows = self.last - self.first
        moved = self._call(node, aten.sub.Tensor, (indices, self.first - 1), {})
        kept = self._call(node, aten.clamp.default, (moved, 0, rows + 1), {})
        ignored = padding - self.first + 1 if self.first <= padding < self.last else 0
        summed = self._call(node, EMBEDDING_BACKWARD, (gradient, kept, rows + 2, ignored, False), {})
        return self._rows_of(summed, 1, rows + 1)
