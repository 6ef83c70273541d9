"""Chunks as calls of one op that Inductor cannot fuse (`OutlineChunks`).

Inductor would join kernels of different chunks.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import graph_module, storages_of, value_of
from lowtide.frameworks.torch.internals.operators import is_view
from lowtide.frameworks.torch.reading.effects import (
    mutated_arguments,
    overwritten_nodes,
    overwritten_storages,
    touched_storages,
)
from lowtide.frameworks.torch.reading.outlined import outlined_op
from lowtide.frameworks.torch.rewrites.chunks.chunk_products import BY_WINDOWS, ChunkProducts
from lowtide.frameworks.torch.rewrites.chunks.updates import ChunkUpdates
from lowtide.frameworks.torch.rewrites.rewrite import MADE_BY, Rewrite, call_like

_CHUNKS = (ChunkProducts.name, ChunkUpdates.name)
Run = Sequence[Node]
"""Nodes of chunks; one call replaces the last."""


@dataclass(frozen=True)
class OutlineChunks(Rewrite[Run]):
    """Replace each run of chunks by one call. A run ends at an op that needs its results.

    Operands are no views, since PyTorch allows no custom op to overwrite views.
    """

    name = "outline-chunks"
    source = "Inductor calls unknown ops, without reordering or fusing their nodes."
    hold: Callable[[GraphModule], str]

    def sites(self, module: GraphModule) -> Sequence[Run]:
        return [run for run in _runs(module.graph) if any(_computes(node) for node in run)]

    def apply(self, module: GraphModule, sites: Sequence[Run]) -> GraphModule:
        run_of = {node: run for run in sites for node in run}
        graph = Graph()
        made: dict[Node, Node] = {}
        waiting: dict[Node, None] = {}
        for node in module.graph.nodes:
            run = run_of.get(node)
            if run is None and any(source not in made for source in node.all_input_nodes):
                waiting[node] = None
            elif run is None:
                made[node] = graph.node_copy(node, made.__getitem__)
            elif node is run[-1]:
                self._append_call(module, graph, run, made)
                for view in waiting:
                    made[view] = graph.node_copy(view, made.__getitem__)
                waiting.clear()
        return graph_module(module, graph)

    def _append_call(self, module: GraphModule, graph: Graph, run: Run, made: dict[Node, Node]) -> None:
        outlined = _Outlined(run)
        given, overwritten, numbers = outlined.operands()
        body, results = outlined.body([*given, *overwritten, *numbers])
        key = self.hold(graph_module(module, body))
        arguments = [[made[node] for node in nodes] for nodes in (given, overwritten, numbers)]
        call = call_like(run[-1], graph, outlined_op(len(results)), *arguments, key)
        for place, node in enumerate(results):
            made[node] = call if len(results) == 1 else call_like(node, graph, operator.getitem, call, place)
        for node in outlined.read_outside():
            outlined.append_outside(node, graph, made)


@dataclass(frozen=True)
class _Outlined:
    run: Run

    @cached_property
    def inside(self) -> set[Node]:
        return set(self.run)

    def operands(self) -> tuple[list[Node], list[Node], list[Node]]:
        """Return tensors to read, tensors to overwrite, and numbers."""
        sources = dict.fromkeys(source for node in self.run for source in node.all_input_nodes)
        bases = [base for base in dict.fromkeys(_views(source)[-1] for source in sources) if base not in self.inside]
        written = storages_of(*(each for node in self.run for each in overwritten_nodes(node)))
        tensors = [base for base in bases if isinstance(value_of(base), torch.Tensor)]
        overwritten = [base for base in tensors if storages_of(base) & written]
        given = [base for base in tensors if base not in overwritten]
        return given, overwritten, [base for base in bases if base not in tensors]

    def body(self, operands: Sequence[Node]) -> tuple[Graph, list[Node]]:
        graph = Graph()
        made: dict[Node, Node] = {}
        for node in operands:
            made[node] = graph.placeholder(node.name)
            made[node].meta = dict(node.meta)
        for node in self.run:
            for source in node.all_input_nodes:
                for view in reversed(_views(source)):
                    if view not in made:
                        made[view] = graph.node_copy(view, made.__getitem__)
            made[node] = graph.node_copy(node, made.__getitem__)
        results = dict.fromkeys(base for node in self.read_outside() if (base := self._base(node)) in self.inside)
        graph.output([made[node] for node in results])
        return graph, list(results)

    def read_outside(self) -> Iterator[Node]:
        for node in self.run:
            if any(user not in self.inside for user in node.users):
                yield node

    def append_outside(self, node: Node, graph: Graph, made: dict[Node, Node]) -> Node:
        if node not in made:
            source = self.append_outside(_viewed(node), graph, made)
            if is_view(node.target):
                made[node] = graph.node_copy(node, lambda each: source if each is _viewed(node) else made[each])
                made[node].meta.pop(MADE_BY, None)
            else:
                made[node] = source
        return made[node]

    def _base(self, node: Node) -> Node:
        while node in self.inside and (is_view(node.target) or mutated_arguments(node)):
            node = _viewed(node)
        return _views(node)[-1] if node not in self.inside else node


def _viewed(node: Node) -> Node:
    overwritten = overwritten_nodes(node)
    return overwritten[0] if overwritten else node.all_input_nodes[0]


def _views(node: Node) -> list[Node]:
    views = [node]
    while is_view(views[-1].target):
        views.append(_viewed(views[-1]))
    return views


def _runs(graph: Graph) -> Iterator[Run]:
    run = _OpenRun()
    for node in graph.nodes:
        if node.meta.get(MADE_BY) in _CHUNKS:
            run.add(node)
        elif not _computes(node):
            run.add_view(node)
        elif run.conflicts_with(node) and (needed := run.needed_by(node)):
            yield needed
            run = run.without(needed)
    if run.nodes:
        yield run.nodes


@dataclass
class _OpenRun:
    nodes: list[Node] = field(default_factory=list[Node])
    with_views: dict[Node, None] = field(default_factory=dict[Node, None])
    touched: set[int] = field(default_factory=set[int])
    written: set[int] = field(default_factory=set[int])

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.with_views[node] = None
        self.touched |= touched_storages(node)
        self.written |= overwritten_storages(node)

    def add_view(self, node: Node) -> None:
        if any(source in self.with_views for source in node.all_input_nodes):
            self.with_views[node] = None

    def conflicts_with(self, node: Node) -> bool:
        return (
            any(source in self.with_views for source in node.all_input_nodes)
            or not self.written.isdisjoint(touched_storages(node))
            or not self.touched.isdisjoint(overwritten_storages(node))
        )

    def needed_by(self, node: Node) -> Run:
        windows = {each: None for each in self.with_views if each.meta.get(BY_WINDOWS)}
        depends = any(source in windows for source in node.all_input_nodes) or any(
            overwritten_storages(node) & touched_storages(each) or overwritten_storages(each) & touched_storages(node)
            for each in windows
        )
        return self.nodes if depends else [each for each in self.nodes if each not in windows]

    def without(self, needed: Run) -> "_OpenRun":
        gone, rest = set(needed), _OpenRun()
        for node in self.with_views:
            if node in self.nodes and node not in gone:
                rest.add(node)
            elif node not in gone:
                rest.add_view(node)
        return rest


def _computes(node: Node) -> bool:
    return node.op == "call_function" and not is_view(node.target) and node.target is not operator.getitem
