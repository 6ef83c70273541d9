"""The order in which ONNX Runtime runs a file by default, whatever the order of the file is."""

from collections.abc import Collection, Sequence

from onnx import GraphProto

from lowtide.frameworks.onnx.operators.nodes import input_names, operator_of
from lowtide.frameworks.onnx.operators.tables import CONSTANTS


def default_order(inputs: Sequence[Collection[str]], outputs: Sequence[Collection[str]]) -> list[int]:
    """Return the positions of the nodes in the runtime's default order.

    `inputs` and `outputs` hold the names every node reads and writes, what its subgraphs capture included.
    Source: a depth-first walk from the nodes that nobody reads, against the edges, the last one first; a node comes
    when all it reads has come (GraphViewer of ONNX Runtime 1.32).
    Complexity: O(edges log edges).
    """
    writers = {name: node for node, names in enumerate(outputs) for name in names}
    before = [sorted({writers[name] for name in names if name in writers}) for names in inputs]
    read = {node for nodes in before for node in nodes}
    waiting = [(node, False) for node in range(len(inputs)) if node not in read]
    seen: set[int] = set()
    order: list[int] = []
    while waiting:
        node, done = waiting.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            waiting += [(needed, False) for needed in before[node] if needed not in seen]
    return order


def default_order_of(graph: GraphProto) -> list[int]:
    """Return the positions of a graph's nodes in the runtime's default order, without constants, which never run."""
    inputs = [input_names(node) for node in graph.node]
    constant = [operator_of(node) in CONSTANTS for node in graph.node]
    outputs = [
        [] if is_constant else [name for name in node.output if name]
        for node, is_constant in zip(graph.node, constant, strict=True)
    ]
    return [node for node in default_order(inputs, outputs) if not constant[node]]


def default_order_among(graph: GraphProto, places: Sequence[int]) -> list[int]:
    """Return places of a graph's nodes in the default order of a file in which they stand as given, each once."""
    walked = default_order_of(GraphProto(node=[graph.node[place] for place in places]))
    return [places[position] for position in walked]
