"""Ops of a program that only copy between two memory spaces: their streams and times."""

from dataclasses import dataclass

import numpy as np

from lowtide.core.errors import GraphError
from lowtide.core.index_spaces import OpId, SpaceId
from lowtide.engine.graph import Graph


def stream_name(graph: Graph, source: SpaceId, target: SpaceId) -> str:
    """Return the name of the stream of copies between two spaces."""
    return f"{graph.spaces[source].name} -> {graph.spaces[target].name}"


def speed_between(graph: Graph, source: SpaceId, target: SpaceId, where: str) -> float:
    """Return the bytes per second between two spaces. Raises GraphError if they are not linked."""
    name, bandwidths = graph.spaces[target].name, graph.spaces[source].bandwidth_bytes_per_s
    if name not in bandwidths:
        raise GraphError(
            f"graph {graph.name!r}: memory space {graph.spaces[source].name!r} has no bandwidth_bytes_per_s to "
            f"{name!r}, where {where} copies a buffer; add it to the space"
        )
    return bandwidths[name]


@dataclass(frozen=True, slots=True)
class CopyOp:
    """The stream and time of an op that only copies."""

    stream: str
    seconds: float
    leaves_home: bool
    """Whether it copies out of the first memory space."""
    size_bytes: int


def copying_ops(graph: Graph) -> dict[OpId, CopyOp]:
    """Return the stream and time of every copying op. Raises GraphError for spaces that are not linked."""
    found: dict[OpId, CopyOp] = {}
    for op in np.flatnonzero(graph.copying).tolist():
        written = {*graph.mutates[op].tolist(), *graph.writes[op].tolist()}
        (source,) = {*graph.reads[op].tolist()} - written
        target = min(written)
        from_space, to_space = int(graph.buffer_spaces[source]), int(graph.buffer_spaces[target])
        size = min(int(graph.sizes[source]), int(graph.sizes[target]))  # one of them may be rows of the other
        seconds = size / speed_between(graph, from_space, to_space, f"op {graph.op_names[op]!r}")
        found[op] = CopyOp(stream_name(graph, from_space, to_space), seconds, from_space == 0, size)
    return found
