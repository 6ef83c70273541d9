"""Facts about nodes."""

from collections.abc import Iterator

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

from lowtide.frameworks.onnx.operators.tables import Operator


def operator_of(node: NodeProto) -> Operator:
    """Return (domain, operator), with "" for the default domain."""
    return (domain_of(node.domain), node.op_type)


def domain_of(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def attribute_of(node: NodeProto, name: str) -> AttributeProto | None:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def int_of(node: NodeProto, name: str, default: int = 0) -> int:
    attribute = attribute_of(node, name)
    return default if attribute is None else attribute.i


def ints_of(node: NodeProto, name: str) -> list[int]:
    attribute = attribute_of(node, name)
    return [] if attribute is None else list(attribute.ints)


def subgraphs_of(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """Yield a node's graphs with labels: attribute names, numbered in lists."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            for position, graph in enumerate(attribute.graphs):
                yield f"{attribute.name}[{position}]", graph


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Yield nodes, nested ones included."""
    for node in graph.node:
        yield node
        for _, inner in subgraphs_of(node):
            yield from all_nodes(inner)


def describe_node(node: NodeProto, position: int) -> str:
    operator = plain(node.op_type)
    return f"node {node.name!r} ({operator})" if node.name else f"node {position} ({operator})"


def plain(text: str) -> str:
    """Return text, quoted if not printable."""
    return text if text.isprintable() else repr(text)


def weight_names(graph: GraphProto) -> list[str]:
    names = [tensor.name for tensor in graph.initializer]
    names.extend(tensor.values.name for tensor in graph.sparse_initializer)
    return names


def default_opset(model: ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if not domain_of(entry.domain)), 1)


def fed_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """Return inputs without an initializer; old files list weights as inputs too."""
    weights = set(weight_names(graph))
    return [value for value in graph.input if value.name not in weights]


def outer_names(graph: GraphProto) -> list[str]:
    """Return names captured by a subgraph, in order of use."""
    own = {value.name for value in graph.input}.union(weight_names(graph))
    own.update(name for node in graph.node for name in node.output)
    used = [name for node in graph.node for name in input_names(node)]
    used.extend(value.name for value in graph.output)
    return [name for name in dict.fromkeys(used) if name and name not in own]


def input_names(node: NodeProto) -> list[str]:
    """Return a node's reads, with repeats: inputs, then its subgraphs' captures."""
    names = [name for name in node.input if name]
    for _, graph in subgraphs_of(node):
        names.extend(outer_names(graph))
    return names


class NewNames:
    """Unused names for a graph."""

    def __init__(self, graph: GraphProto) -> None:
        self._taken = {name for node in all_nodes(graph) for name in (node.name, *node.input, *node.output)}
        self._taken |= {value.name for value in (*graph.input, *graph.output)} | set(weight_names(graph))

    def new(self, wanted: str) -> str:
        """Return and reserve `wanted`, numbered if it exists."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}/{number}", number + 1
        self._taken.add(name)
        return name
