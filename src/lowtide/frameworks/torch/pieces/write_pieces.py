"""Writing a program down with some of its regions done piece by piece."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from lowtide.frameworks.torch.effects import arguments_by_name, mutated_arguments
from lowtide.frameworks.torch.lowering import nodes_in
from lowtide.frameworks.torch.pieces.regions import Region
from lowtide.frameworks.torch.pieces.row_wise import EMBEDDING_BACKWARD, is_cut
from lowtide.frameworks.torch.torch_internals import map_nodes, value_of

aten = torch.ops.aten


def write_pieces(module: GraphModule, row_counts: Mapping[Region, int]) -> GraphModule:
    """Return the program with each region as a loop over pieces of so many rows, unrolled."""
    region_of = {node: region for region in row_counts for node in region.nodes}
    graph = Graph()
    made: dict[Node, Node] = {}
    for node in module.graph.nodes:
        region = region_of.get(node)
        if region is None:
            made[node] = graph.node_copy(node, made.__getitem__)
        elif node is region.nodes[-1]:
            _write(graph, region, row_counts[region], made)
    return GraphModule(module, graph)


def _write(graph: Graph, region: Region, count: int, made: dict[Node, Node]) -> None:
    rows = region.shape[0]
    for first in range(0, rows, count):
        piece = _Piece(graph, made, region.shape, first, min(first + count, rows), {}, {})
        for node in region.nodes:
            piece.add(node)
    for node in region.nodes:  # whoever reads what was overwritten finds it where it always was
        overwritten = nodes_in(mutated_arguments(node))
        if overwritten and overwritten[0] in made:
            made[node] = made[overwritten[0]]


@dataclass(frozen=True, slots=True)
class _Piece:
    graph: Graph
    made: Mapping[Node, Node]
    shape: torch.Size
    first: int
    last: int
    computed: dict[Node, Node]
    cut: dict[Node, Node]

    def add(self, node: Node) -> None:
        """Append what a node of the region does to the rows of this piece."""
        if node.target is EMBEDDING_BACKWARD:
            self.computed[node] = self._embedding(node)
            return
        args, kwargs = map_nodes((node.args, dict(node.kwargs)), self._operand)
        done = self._call(node, node.target, args, kwargs)
        overwritten = nodes_in(mutated_arguments(node))
        if node.target is operator.getitem:
            done.meta["val"] = value_of(args[0])[args[1]]
        elif overwritten:
            result = value_of(self._operand(overwritten[0]))
            done.meta["val"] = pytree.tree_map_only(torch.Tensor, lambda _: result, value_of(node))
        else:
            done.meta["val"] = pytree.tree_map_only(torch.Tensor, self._form, value_of(node))
        self.computed[node] = done

    def _operand(self, node: Node) -> Node:
        if node in self.computed:
            return self.computed[node]
        whole = self.made[node]
        if not is_cut(value_of(whole), self.shape):
            return whole
        if node not in self.cut:
            self.cut[node] = self._rows_of(whole, self.first, self.last)
        return self.cut[node]

    def _rows_of(self, node: Node, first: int, last: int) -> Node:
        rows = self.graph.call_function(aten.slice.Tensor, (node, 0, first, last))
        rows.meta = {**node.meta, "val": aten.slice.Tensor(value_of(node), 0, first, last)}
        return rows

    def _form(self, value: torch.Tensor) -> torch.Tensor:
        """Return a new tensor like a contiguous one, with the rows of this piece."""
        return value.new_empty((self.last - self.first, *value.shape[1:]))

    def _call(self, like: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Node:
        name = f"{like.name}_from_{self.first}"
        done = self.graph.create_node("call_function", target, tuple(args), dict(kwargs), name=name)
        done.meta = dict(like.meta)
        return done

    def _embedding(self, node: Node) -> Node:
        """Sum the gradients of the tokens of this piece: the first row is for tokens before it, the last for others."""
        given = arguments_by_name(node)
        gradient, indices = self.made[given["grad_output"]], self.made[given["indices"]]
        padding: int = given["padding_idx"]
        rows = self.last - self.first
        moved = self._call(node, aten.sub.Tensor, (indices, self.first - 1), {})
        kept = self._call(node, aten.clamp.default, (moved, 0, rows + 1), {})
        for made in (moved, kept):
            made.meta["val"] = value_of(indices).new_empty(value_of(indices).shape)
        ignored = padding - self.first + 1 if self.first <= padding < self.last else 0
        summed = self._call(node, EMBEDDING_BACKWARD, (gradient, kept, rows + 2, ignored, False), {})
        summed.meta["val"] = value_of(node).new_empty((rows + 2, *self.shape[1:]))
        return self._rows_of(summed, 1, rows + 1)
