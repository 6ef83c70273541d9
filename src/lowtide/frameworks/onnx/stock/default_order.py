"""The order in which ONNX Runtime runs a file by default."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto

from lowtide.frameworks.onnx.operators.nodes import input_names, operator_of
from lowtide.frameworks.onnx.operators.tables import CONSTANTS
from lowtide.frameworks.onnx.reading.translation import Translation


def default_order_of(graph: GraphProto) -> list[int]:
    """Return node positions in the runtime's default order, without constants.

    Source: GraphViewer of ONNX Runtime 1.32. Complexity: O(edges log edges).
    """
    running = [place for place, node in enumerate(graph.node) if operator_of(node) not in CONSTANTS]
    writers = {name: place for place in running for name in graph.node[place].output if name}
    before = {
        place: sorted({writers[name] for name in input_names(graph.node[place]) if name in writers})
        for place in running
    }
    read = {writer for writers in before.values() for writer in writers}
    waiting = [(place, False) for place in running if place not in read]
    seen: set[int] = set()
    order: list[int] = []
    while waiting:
        place, done = waiting.pop()
        if done:
            order.append(place)
        elif place not in seen:
            seen.add(place)
            waiting.append((place, True))
            waiting += [(needed, False) for needed in before[place] if needed not in seen]
    return order


def default_order_among(graph: GraphProto, places: Sequence[int]) -> list[int]:
    """Return a file's default order of these nodes."""
    walked = default_order_of(GraphProto(node=[graph.node[place] for place in places]))
    return [places[position] for position in walked]


def order_of_ops(translation: Translation, nodes: Sequence[int]) -> NDArray[np.int32]:
    """Return the ops, ordered by their first nodes."""
    place = {node: number for number, node in enumerate(nodes)}
    members = translation.nodes_of_ops
    first = [min((place[node] for node in nodes if node in place), default=-1) for nodes in members]
    return np.argsort(np.array(first), kind="stable").astype(np.int32)
