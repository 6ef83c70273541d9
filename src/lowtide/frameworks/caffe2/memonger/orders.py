"""memonger's graph of ops and its two orders."""

from collections.abc import Iterable, Iterator
from graphlib import CycleError
from typing import Any

from lowtide.core.errors import UsageError
from lowtide.frameworks.caffe2.nets.named import named_ops
from lowtide.frameworks.caffe2.nets.netdef import NetDef
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet
from lowtide.frameworks.caffe2.sharing.orders import interference_edges, longest_path_order_of, topological_order_of


class Edges:
    """Edges, as in networkx."""

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
    """Ops by position and their dependences, as in networkx."""

    def __init__(self, ops: Iterable[Any], net: NamedNet) -> None:
        self.nodes: dict[int, dict[str, Any]] = {position: {"op": op} for position, op in enumerate(ops)}
        self.edges = Edges(net)

    def __iter__(self) -> Iterator[int]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def successors(self, node: int) -> list[int]:
        return [after for before, after in self.edges if before == node]

    def predecessors(self, node: int) -> list[int]:
        return [before for before, after in self.edges if after == node]


def compute_interference_graph(ops: Iterable[Any]) -> InterferenceGraph:
    """Return dependences between ops; see `share.interference_edges`."""
    listed = list(ops)
    return InterferenceGraph(listed, NamedNet(ops=named_ops(NetDef(op=listed))))


def topological_sort_traversal(g: Any) -> list[Any]:
    """Return nodes in the order in which they become ready; `g` is a networkx graph, or nodes with `edges`."""
    nodes, before = _predecessors(g)
    try:
        return [nodes[place] for place in topological_order_of(before)]
    except CycleError:
        raise UsageError("the graph has a cycle, so that no order is valid; give an acyclic one") from None


def topological_sort_traversal_longest_path(g: Any) -> list[Any]:
    """Return memonger's order by longest path, also if paths form no tree; `g` as in `topological_sort_traversal`."""
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
