"""Rows of a product computed a second time, for what needs something of all rows first: a backward pass, mostly."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import map_nodes
from lowtide.frameworks.torch.rewrites.chunks.products import SECOND_PASS, TwoPasses
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, origin_of


@dataclass(frozen=True)
class RowsAgain(Rewrite[TwoPasses]):
    """Let a second pass over the rows of a product compute again what the first one made of them.

    Neither pass then holds anything as large as the product for the other, so that both can be done in chunks.
    """

    name = "rows-again"
    source = "An op without effects gives the same bits whenever it runs on the same operands."
    chosen: tuple[TwoPasses, ...]

    def sites(self, module: GraphModule) -> Sequence[TwoPasses]:
        """Return the chosen products."""
        return self.chosen

    def apply(self, module: GraphModule, sites: Sequence[TwoPasses]) -> GraphModule:
        """Return a copy in which each second pass begins anew, and nobody keeps what it computes again."""
        graph = Graph()
        made: dict[Node, Node] = {}
        passes = {node: second for second in (_Second(graph, site, made) for site in sites) for node in second.nodes}
        for node in module.graph.nodes:
            made[node] = graph.node_copy(node, passes[node].of if node in passes else made.__getitem__)
            if node in passes:
                made[node].meta[SECOND_PASS] = passes[node].product
        for node in reversed([node for site in sites for node in site.again]):
            if not made[node].users:
                graph.erase_node(made[node])
        return GraphModule(module, graph)


@dataclass(frozen=True, slots=True)
class _Second:
    graph: Graph
    site: TwoPasses
    made: dict[Node, Node]
    copies: dict[Node, Node] = field(default_factory=dict[Node, Node])

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes of the second pass."""
        return self.site.second

    @property
    def product(self) -> str:
        """The name of the product in the first pass."""
        return self.site.product.name

    def of(self, node: Node) -> Node:
        """Return a node as the second pass reads it."""
        if node not in self.site.again:
            return self.made[node]
        if node not in self.copies:
            args, kwargs = map_nodes((node.args, dict(node.kwargs)), self.of)
            name = f"{node.name}_again"
            self.copies[node] = self.graph.create_node("call_function", node.target, args, kwargs, name=name)
            self.copies[node].meta = {**origin_of(node), SECOND_PASS: self.product}
        return self.copies[node]
