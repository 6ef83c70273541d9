"""memonger's graph of ops, and its two orders."""

from collections.abc import Iterable, Iterator
from typing import Any

from lowtide.core.errors import UsageError
from lowtide.frameworks.caffe2.nets.named import named_ops
from lowtide.frameworks.caffe2.nets.netdef import NetDef
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet
from lowtide.frameworks.caffe2.sharing.orders import interference_edges, longest_path_order_of, topological_order_of


class Edges:
    """The edges of a graph of ops, with the networkx interface: iterate, call, and look up an edge's data."""

    def __init__(self, net: NamedNet) -> None:
        self._ops = net.ops
        self._pairs = interference_edges(net)

    def __call__(self) -> list[tuple[int, int]]:
        return self._pairs

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, edge: tuple[int, int]) -> dict[str, set[str]]:
        before, after = edge
        return {"deps": {*self._ops[before].outputs} & {*self._ops[after].inputs}}


class InterferenceGraph:
    """Ops by position and their dependences, with the names of a networkx graph."""

    def __init__(self, ops: Iterable[Any], net: NamedNet) -> None:
        """Take ops, and the same ops as a net over named blobs."""
        self.nodes: dict[int, dict[str, Any]] = {position: {"op": op} for position, op in enumerate(ops)}
        """The op at each position."""
        self.edges = Edges(net)

    def __iter__(self) -> Iterator[int]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def successors(self, node: int) -> list[int]:
        """Return the ops that wait for an op."""
        return [after for before, after in self.edges if before == node]

    def predecessors(self, node: int) -> list[int]:
        """Return the ops that an op waits for."""
        return [before for before, after in self.edges if after == node]


def compute_interference_graph(ops: Iterable[Any]) -> InterferenceGraph:
    """Return the dependences between ops in time proportional to the edges; see `interference_edges`.

    memonger looks at every pair of ops, and checks for cycles after each edge.
    """
    listed = list(ops)
    return InterferenceGraph(listed, NamedNet(ops=named_ops(NetDef(op=listed))))


def topological_sort_traversal(g: Any) -> list[Any]:
    """Return the nodes in the order in which they become ready, ties in the order of the graph.

    `g` is an interference graph, or an iterable of nodes with a method `edges`, such as a networkx graph.
    """
    nodes, before = _predecessors(g)
    order = topological_order_of(before)
    if len(order) < len(nodes):
        raise UsageError("the graph has a cycle, so that no order is valid; give an acyclic one")
    return [nodes[place] for place in order]


def topological_sort_traversal_longest_path(g: Any) -> list[Any]:
    """Return the order that starts the sources with the longest paths first, with memonger's ties.

    If the paths form no tree, memonger fails; here they are merged. `g` is that of `topological_sort_traversal`.
    """
    nodes, before = _predecessors(g)
    if all(other < place for place, others in enumerate(before) for other in others):
        return [nodes[place] for place in longest_path_order_of(before)]
    raise UsageError("an edge leads to an earlier node; number the nodes so that edges lead forward")


def _predecessors(g: Any) -> tuple[list[Any], list[list[int]]]:
    nodes = list(g)
    places = {node: place for place, node in enumerate(nodes)}
    before: list[list[int]] = [[] for _ in nodes]
    for former, latter in sorted((places[former], places[latter]) for former, latter in g.edges()):
        before[latter].append(former)
    return nodes, before
