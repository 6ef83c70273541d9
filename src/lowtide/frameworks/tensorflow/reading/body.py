"""Nodes and edges of a graph or function."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from lowtide.core.errors import MalformedInputError, UnsupportedError
from lowtide.frameworks.tensorflow.graphs.attributes import of_type
from lowtide.frameworks.tensorflow.graphs.graph_def import FunctionDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators import BIAS_GRADIENT, CONTROL_FLOW_V1, FILTER_GRADIENT, spec_of

Port = tuple[int, int]
"""A node and the index of an output."""


class NodeCycleError(MalformedInputError):
    """Nodes form a cycle."""


@dataclass(frozen=True, slots=True)
class NodeBody:
    """Nodes and their edges. A function starts with its arguments, as nodes "_Arg"."""

    nodes: Sequence[NodeDef]
    places: Mapping[str, int]
    data: Sequence[Sequence[Port]]
    """Outputs read by each node, in input order."""
    controls: Sequence[Sequence[int]]
    n_arguments: int
    where: str

    def port(self, text: str) -> Port:
        """Return the output named by "node", "node:1" or "node:output:0"; raises MalformedInputError without one."""
        name, _, rest = text.partition(":")
        if name not in self.places:
            raise MalformedInputError(f"{self.where}: there is no node {name!r} for {text!r}")
        node = self.places[name]
        output, _, number = rest.rpartition(":")
        if not number:
            return node, 0
        if not number.isdigit():
            raise MalformedInputError(f"{self.where}: {text!r} is not an output; write NODE:NUMBER")
        if not output:
            return node, int(number)
        spec = spec_of(self.nodes[node].op)
        place = None if spec is None else spec.output_place(self.nodes[node], output)
        if place is None:  # a function called by its name, or an unknown op
            return node, int(number)
        return node, place + int(number)

    def neighbors(self, node: int) -> Iterable[int]:
        yield from (source for source, _ in self.data[node])
        yield from self.controls[node]

    def ancestors(self, nodes: Iterable[int], fed: Collection[int]) -> list[bool]:
        """Return, per node, whether one of `nodes` needs it. Fed nodes need no inputs."""
        needed = [False] * len(self.nodes)
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if not needed[node]:
                needed[node] = True
                if node not in fed:
                    waiting += self.neighbors(node)
        return needed


def body_of_graph(nodes: Sequence[NodeDef], where: str) -> NodeBody:
    """Return nodes with their edges; raises MalformedInputError for missing inputs and repeated names."""
    return _linked(nodes, 0, where)


def body_of_function(function: FunctionDef, where: str) -> NodeBody:
    arguments = [NodeDef.make(each.name, "_Arg", (), {"T": of_type(each.type)}) for each in function.inputs]
    return _linked([*arguments, *function.nodes], len(arguments), where)


def _linked(nodes: Sequence[NodeDef], n_arguments: int, where: str) -> NodeBody:
    places: dict[str, int] = {}
    for place, node in enumerate(nodes):
        if places.setdefault(node.name, place) != place:
            raise MalformedInputError(f"{where}: two nodes are named {node.name!r}; names must be unique")
        if not node.name or not node.op:
            raise MalformedInputError(f"{where}: node {place} ({node.name!r}) has no {'op' if node.name else 'name'}")
    data: list[list[Port]] = []
    controls: list[list[int]] = []
    body = NodeBody(nodes, places, data, controls, n_arguments, where)
    for node in nodes:
        reads: list[Port] = []
        waits: list[int] = []
        for text in node.inputs:
            source = places.get(text[1:]) if text.startswith("^") else places.get(text)
            if source is None and not text.startswith("^") and ":" in text:
                try:
                    port = body.port(text)
                except MalformedInputError as error:
                    raise MalformedInputError(f"{error} as an input of node {node.name!r}") from None
                reads.append(port)
            elif source is None:
                raise MalformedInputError(
                    f"{where}: node {node.name!r} has input {text!r}, but there is no such node; the graph was cut"
                )
            elif text.startswith("^"):
                waits.append(source)
            else:
                reads.append((source, 0))
        data.append(reads)
        controls.append(waits)
    return body


def sorter_of(body: NodeBody, needed: Sequence[bool], fed: Collection[int]) -> TopologicalSorter[int]:
    nodes = [node for node, is_needed in enumerate(needed) if is_needed]
    sorter = TopologicalSorter[int](dict.fromkeys(nodes, ()))
    for node in nodes:
        if node not in fed:
            sorter.add(node, *dict.fromkeys(body.neighbors(node)))
    return sorter


def first_ready_order(body: NodeBody, needed: Sequence[bool], fed: Collection[int]) -> list[int]:
    """Return the needed nodes as they become ready, like Grappler's virtual scheduler. O(n + e).

    Raises UnsupportedError for a loop of v1 control flow, NodeCycleError for another cycle.
    """
    try:
        return list(sorter_of(body, needed, fed).static_order())
    except CycleError as error:
        cycle: list[int] = error.args[1][1:]
        names = [body.nodes[node] for node in cycle]
        for node in names:
            if node.op in CONTROL_FLOW_V1:
                raise UnsupportedError(f"{body.where}: {v1_reason(node)}") from None
        raise NodeCycleError(
            f"{body.where}: {len(names)} nodes form a cycle through {names[0].name!r}; remove it"
        ) from None


def refuse_v1(body: NodeBody, needed: Sequence[bool]) -> None:
    """Raise UnsupportedError for a needed node of v1 control flow."""
    for node, is_needed in zip(body.nodes, needed, strict=True):
        if is_needed and node.op in CONTROL_FLOW_V1:
            raise UnsupportedError(f"{body.where}: {v1_reason(node)}")


def v1_reason(node: NodeDef) -> str:
    return (
        f"node {node.name!r} ({node.op}) is control flow of TensorFlow 1, which is not supported; build the graph with "
        "tf.compat.v1.enable_control_flow_v2(), or choose fetches that do not need the node"
    )


def fused_pairs(body: NodeBody, needed: Sequence[bool]) -> dict[int, int]:
    """Return, per bias gradient, the filter gradient that oneDNN fuses it with on CPUs.

    An op between the two would form a cycle with the fused node. Source: mkl_layout_pass.cc.
    """
    filters = {
        body.data[place][2]: place
        for place, node in enumerate(body.nodes)
        if needed[place] and node.op == FILTER_GRADIENT and len(body.data[place]) > 2
    }
    return {
        place: filters[body.data[place][0]]
        for place, node in enumerate(body.nodes)
        if needed[place] and node.op == BIAS_GRADIENT and body.data[place] and body.data[place][0] in filters
    }


def with_waits(body: NodeBody, pairs: dict[int, int]) -> NodeBody:
    controls = list(body.controls)
    for place, other in pairs.items():
        controls[place] = [*controls[place], other]
    return replace(body, controls=controls)
