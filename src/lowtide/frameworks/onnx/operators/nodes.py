"""Which operator a node is, and the small facts about nodes that several parts ask for."""

from collections.abc import Iterator

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, ValueInfoProto

from lowtide.frameworks.onnx.operators.tables import Operator


def operator_of(node: NodeProto) -> Operator:
    """Return (domain, operator) with the default domain spelled ""."""
    return (domain_of(node.domain), node.op_type)


def domain_of(domain: str) -> str:
    """Return a domain, the default one always as ""."""
    return "" if domain == "ai.onnx" else domain


def attribute_of(node: NodeProto, name: str) -> AttributeProto | None:
    """Return a node's attribute by name, or None."""
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def int_of(node: NodeProto, name: str, default: int = 0) -> int:
    """Return a whole number that a node's attribute gives, or the default where the node has none of that name."""
    attribute = attribute_of(node, name)
    return default if attribute is None else attribute.i


def ints_of(node: NodeProto, name: str) -> list[int]:
    """Return the whole numbers that a node's attribute gives, none where the node has none of that name."""
    attribute = attribute_of(node, name)
    return [] if attribute is None else list(attribute.ints)


def subgraphs_of(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """Iterate the graphs in a node's attributes with their labels: the attribute's name, numbered in a list."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            for position, graph in enumerate(attribute.graphs):
                yield f"{attribute.name}[{position}]", graph


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Iterate the nodes of a graph or a function and of everything inside it."""
    for node in graph.node:
        yield node
        for _, inner in subgraphs_of(node):
            yield from all_nodes(inner)


def describe_node(node: NodeProto, position: int) -> str:
    """Name a node in messages: its own name, or its operator and place."""
    operator = plain(node.op_type)
    return f"node {node.name!r} ({operator})" if node.name else f"node {position} ({operator})"


def plain(text: str) -> str:
    """Return text that is safe inside a one-line message: as it is, or quoted where it holds control characters."""
    return text if text.isprintable() else repr(text)


def weight_names(graph: GraphProto) -> list[str]:
    """Return the names of a graph's initializers, dense and sparse, in order."""
    names = [tensor.name for tensor in graph.initializer]
    names.extend(tensor.values.name for tensor in graph.sparse_initializer)
    return names


def fed_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """Return the inputs that a caller feeds: those that are no initializers, which old files list as inputs too."""
    weights = set(weight_names(graph))
    return [value for value in graph.input if value.name not in weights]


def outer_names(graph: GraphProto) -> list[str]:
    """Return the names a subgraph takes from the graphs around it, in order of first use."""
    own = {value.name for value in graph.input}.union(weight_names(graph))
    own.update(name for node in graph.node for name in node.output)
    used = [name for node in graph.node for name in input_names(node)]
    used.extend(value.name for value in graph.output)
    return [name for name in dict.fromkeys(used) if name and name not in own]


def input_names(node: NodeProto) -> list[str]:
    """Return everything a node reads, in order and with repeats: its inputs, then what its subgraphs capture."""
    names = [name for name in node.input if name]
    for _, graph in subgraphs_of(node):
        names.extend(outer_names(graph))
    return names
