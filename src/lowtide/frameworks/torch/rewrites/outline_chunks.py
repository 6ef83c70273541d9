"""What is done in chunks as one op, so that a compiler that fuses kernels cannot do all chunks at once again."""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import storages_of, value_of
from lowtide.frameworks.torch.internals.operators import is_view
from lowtide.frameworks.torch.reading.effects import mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.reading.outlined import outlined_op
from lowtide.frameworks.torch.rewrites.chunks.by_rows import BY_WINDOWS, ProductsByRows
from lowtide.frameworks.torch.rewrites.chunks.in_chunks import InChunks
from lowtide.frameworks.torch.rewrites.rewrite import MADE_BY, Rewrite, origin_of

_CHUNKS = (ProductsByRows.name, InChunks.name)
Run = Sequence[Node]
"""Nodes of chunks, in program order; they are called where the last one stood."""


@dataclass(frozen=True)
class OutlineChunks(Rewrite[Run]):
    """Call what is done in chunks as one op, as far as nothing else has to come between.

    The op is given what views look at, since PyTorch allows no op of one's own to overwrite views.
    """

    name = "outline-chunks"
    source = "Compilers outline functions; Inductor fuses chunks across their order, and calls what it does not know."
    hold: Callable[[GraphModule], str]
    """Takes what is outlined, and returns the key by which the op finds it."""

    def sites(self, module: GraphModule) -> Sequence[Run]:
        """Return all runs of chunks that compute something."""
        return [run for run in _runs(module.graph) if any(_computes(node) for node in run)]

    def apply(self, module: GraphModule, sites: Sequence[Run]) -> GraphModule:
        """Return a copy with a call in the place of the last node of each run."""
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
                self._call(module, graph, run, made)
                for view in waiting:
                    made[view] = graph.node_copy(view, made.__getitem__)
                waiting.clear()
        return GraphModule(module, graph)

    def _call(self, module: GraphModule, graph: Graph, run: Run, made: dict[Node, Node]) -> None:
        outlined = _Outlined(run)
        given, overwritten, numbers = outlined.operands()
        body, results = outlined.body([*given, *overwritten, *numbers])
        key = self.hold(GraphModule(module, body))
        arguments = [[made[node] for node in nodes] for nodes in (given, overwritten, numbers)]
        call = graph.call_function(outlined_op(len(results)), (*arguments, key))
        call.meta = origin_of(run[-1])
        for place, node in enumerate(results):
            made[node] = call if len(results) == 1 else graph.call_function(operator.getitem, (call, place))
            if made[node] is not call:
                made[node].meta = origin_of(node)
        for node in outlined.read_outside():
            outlined.give_outside(node, graph, made)


@dataclass(frozen=True)
class _Outlined:
    """A run of chunks on its way to a program of its own."""

    run: Run
    inside: set[Node] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inside", set(self.run))

    def operands(self) -> tuple[list[Node], list[Node], list[Node]]:
        """Return what is given: tensors, tensors that are overwritten, and numbers; no tensor is a view of another."""
        sources = dict.fromkeys(source for node in self.run for source in node.all_input_nodes)
        roots = [root for root in dict.fromkeys(_views(source)[-1] for source in sources) if root not in self.inside]
        written = storages_of(*(each for node in self.run for each in nodes_in(mutated_arguments(node))))
        tensors = [root for root in roots if isinstance(value_of(root), torch.Tensor)]
        overwritten = [root for root in tensors if storages_of(root) & written]
        given = [root for root in tensors if root not in overwritten]
        return given, overwritten, [root for root in roots if root not in tensors]

    def body(self, operands: Sequence[Node]) -> tuple[Graph, list[Node]]:
        """Return the run as a graph of what it is given, and its results, which lie in no operand."""
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
        whole = dict.fromkeys(root for node in self.read_outside() if (root := self._whole(node)) in self.inside)
        graph.output([made[node] for node in whole])
        return graph, list(whole)

    def read_outside(self) -> Iterator[Node]:
        """Yield the nodes of the run that others read."""
        for node in self.run:
            if any(user not in self.inside for user in node.users):
                yield node

    def give_outside(self, node: Node, graph: Graph, made: dict[Node, Node]) -> Node:
        """Return what stands for a node outside: a result, a view of one or of an operand, or what is overwritten."""
        if node not in made:
            source = self.give_outside(_looked_at(node), graph, made)
            if is_view(node.target):
                made[node] = graph.node_copy(node, lambda each: source if each is _looked_at(node) else made[each])
                made[node].meta.pop(MADE_BY, None)
            else:
                made[node] = source
        return made[node]

    def _whole(self, node: Node) -> Node:
        """Return what a node is a view of, or has overwritten: an operand, or what an op of the run has made."""
        while node in self.inside and (is_view(node.target) or mutated_arguments(node)):
            node = _looked_at(node)
        return _views(node)[-1] if node not in self.inside else node


def _looked_at(node: Node) -> Node:
    """Return what a view looks at, or what an op overwrites and returns."""
    overwritten = nodes_in(mutated_arguments(node))
    return overwritten[0] if overwritten else node.all_input_nodes[0]


def _views(node: Node) -> list[Node]:
    """Return a node, what it is a view of, and so on, up to what has a storage of its own."""
    views = [node]
    while is_view(views[-1].target):
        views.append(_looked_at(views[-1]))
    return views


def _runs(graph: Graph) -> Iterator[Run]:
    """Yield what is called together: chunks wait for the next ones where nothing between has to do with them."""
    run = _OpenRun()
    for node in graph.nodes:
        if node.meta.get(MADE_BY) in _CHUNKS:
            run.add(node)
        elif not _computes(node):
            run.pass_by(node)
        elif run.meets(node) and (needed := run.needed_by(node)):
            yield needed
            run = run.without(needed)
    if run.nodes:
        yield run.nodes


@dataclass
class _OpenRun:
    """Nodes of chunks that may wait for others, and what they touch."""

    nodes: list[Node] = field(default_factory=list[Node])
    behind: dict[Node, None] = field(default_factory=dict[Node, None])
    """The nodes themselves, and views of what they make, in program order."""
    touched: set[int] = field(default_factory=set[int])
    """Storages, by their keys."""
    written: set[int] = field(default_factory=set[int])

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.behind[node] = None
        self.touched |= _touched(node)
        self.written |= _written(node)

    def pass_by(self, node: Node) -> None:
        """Note a view that stands among the nodes."""
        if any(source in self.behind for source in node.all_input_nodes):
            self.behind[node] = None

    def meets(self, node: Node) -> bool:
        """Tell whether a node needs what the run does, or overwrites what that reads."""
        return (
            any(source in self.behind for source in node.all_input_nodes)
            or not self.written.isdisjoint(_touched(node))
            or not self.touched.isdisjoint(_written(node))
        )

    def needed_by(self, node: Node) -> Run:
        """Return what must come before a node: all of it, or all but the windows, which wait for what takes them."""
        windows = {each: None for each in self.behind if each.meta.get(BY_WINDOWS)}
        meet = any(source in windows for source in node.all_input_nodes) or any(
            _written(node) & _touched(each) or _written(each) & _touched(node) for each in windows
        )
        return self.nodes if meet else [each for each in self.nodes if each not in windows]

    def without(self, needed: Run) -> "_OpenRun":
        """Return what is left to wait."""
        gone, rest = set(needed), _OpenRun()
        for node in self.behind:
            if node in self.nodes and node not in gone:
                rest.add(node)
            elif node not in gone:
                rest.pass_by(node)
        return rest


def _touched(node: Node) -> set[int]:
    return storages_of(node, *node.all_input_nodes)


def _written(node: Node) -> set[int]:
    return storages_of(*nodes_in(mutated_arguments(node)))


def _computes(node: Node) -> bool:
    return node.op == "call_function" and not is_view(node.target) and node.target is not operator.getitem
