"""The order in which ONNX Runtime runs a file by default."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto

from lowtide.frameworks.onnx.operators.nodes import input_names, operator_of
from lowtide.frameworks.onnx.operators.tables import CONSTANTS
from lowtide.frameworks.onnx.reading.translation import Translation


def default_order(inputs: Sequence[Collection[str]], outputs: Sequence[Collection[str]]) -> list[int]:
    """Return the positions of the nodes in the runtime's default order.

    `inputs` and `outputs` hold the names each node reads and writes, captured names included. Source: GraphViewer of
    ONNX Runtime 1.32, a depth-first walk against the edges from nodes without readers, last first. Complexity: O(edges
    log edges).
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
    """Return node positions in the default order, without constants."""
    inputs = [input_names(node) for node in graph.node]
    constant = [operator_of(node) in CONSTANTS for node in graph.node]
    outputs = [
        [] if is_constant else [name for name in node.output if name]
        for node, is_constant in zip(graph.node, constant, strict=True)
    ]
    return [node for node in default_order(inputs, outputs) if not constant[node]]


def default_order_among(graph: GraphProto, places: Sequence[int]) -> list[int]:
    """Return positions in the default order of a file with these nodes."""
    walked = default_order_of(GraphProto(node=[graph.node[place] for place in places]))
    return [places[position] for position in walked]


def order_of_ops(translation: Translation, nodes: Sequence[int]) -> NDArray[np.int32]:
    """Return the ops, ordered by their first nodes."""
    place = {node: number for number, node in enumerate(nodes)}
    members = translation.nodes_of_ops
    first = [min((place[node] for node in nodes if node in place), default=-1) for nodes in members]
    return np.argsort(np.array(first), kind="stable").astype(np.int32)
