"""Ops off the device: copies and updates on the host."""

from dataclasses import dataclass

import numpy as np

from lowtide.core.errors import GraphError
from lowtide.core.index_spaces import OpId, SpaceId
from lowtide.engine.costs.estimates import operand_sizes
from lowtide.engine.graph import Graph


def stream_name(graph: Graph, source: SpaceId, target: SpaceId) -> str:
    return f"{graph.spaces[source].name} -> {graph.spaces[target].name}"


def speed_between(graph: Graph, source: SpaceId, target: SpaceId, where: str) -> float:
    """Return the bytes per second between two spaces; raises GraphError if they are not linked."""
    name, bandwidths = graph.spaces[target].name, graph.spaces[source].bandwidth_bytes_per_s
    if name not in bandwidths:
        raise GraphError(
            f"graph {graph.name!r}: memory space {graph.spaces[source].name!r} has no bandwidth_bytes_per_s to "
            f"{name!r}, where {where} copies a buffer; add it to the space"
        )
    return bandwidths[name]


@dataclass(frozen=True, slots=True)
class OffDeviceOp:
    """Stream and time of an op off the device."""

    stream: str
    seconds: float
    bytes_out: int
    """Bytes copied out of the first memory space."""


def off_device_ops(graph: Graph) -> dict[OpId, OffDeviceOp]:
    """Return every off-device op's stream and time; raises GraphError for unlinked spaces."""
    found = {op: _copy(graph, op) for op in np.flatnonzero(graph.copying).tolist()}
    if not graph.updates_on_host.any():
        return found
    for op, (read, written) in enumerate(operand_sizes(graph)):
        if graph.updates_on_host[op]:
            found[op] = _update(graph, op, sum(read) + sum(written))
    return found


def _copy(graph: Graph, op: OpId) -> OffDeviceOp:
    written = {*graph.mutates[op].tolist(), *graph.writes[op].tolist()}
    (source,) = {*graph.reads[op].tolist()} - written
    target = min(written)
    from_space, to_space = int(graph.buffer_spaces[source]), int(graph.buffer_spaces[target])
    size = min(int(graph.sizes[source]), int(graph.sizes[target]))  # one of them may be rows of the other
    seconds = size / speed_between(graph, from_space, to_space, f"op {graph.op_names[op]!r}")
    return OffDeviceOp(stream_name(graph, from_space, to_space), seconds, 0 if from_space else size)


def _update(graph: Graph, op: OpId, traffic_bytes: int) -> OffDeviceOp:
    host = int(graph.buffer_spaces[max(graph.mutates[op].tolist(), key=lambda buffer: graph.sizes[buffer])])
    seconds = traffic_bytes / speed_between(graph, host, host, f"op {graph.op_names[op]!r}")
    return OffDeviceOp(graph.spaces[host].name, seconds, 0)
