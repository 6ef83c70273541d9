"""Optimizer state in a graph without its framework: found by its use, and moved to the host with copying ops."""

from collections.abc import Sequence

import msgspec.structs
import numpy as np

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import STATE_TO_DEVICE, STATE_TO_HOST, Graph, GraphBuilder, Op
from lowtide.engine.offload.host_space import find_link, with_state_on_host

_LEAST_BYTES = 1024
"""Smaller buffers stay on the device."""


def state_of(graph: Graph) -> list[BufferId]:
    """Return the persistent buffers of the device that are first used by an op that overwrites them, largest first."""
    first: dict[BufferId, bool] = {}
    for reads, mutates in zip(graph.reads, graph.mutates, strict=True):
        for buffer in (*mutates, *reads):
            first.setdefault(buffer, buffer in mutates)
    chosen = graph.persistent & (graph.buffer_spaces == 0) & (graph.sizes >= _LEAST_BYTES)
    found = [buffer for buffer in np.flatnonzero(chosen).tolist() if first.get(buffer)]
    return sorted(found, key=lambda buffer: (-int(graph.sizes[buffer]), buffer))


def copied_around_updates(graph: Graph, share: float) -> Graph | None:
    """Return a graph with a share of its state on its host: copied to the device before its uses and back after them.

    Returns None if the graph has no link to a host, or no such state.
    """
    state = state_of(graph)
    ends = np.cumsum(graph.sizes[state])
    link = find_link(graph, 0)
    if link is None or not state or not share:
        return None
    chosen = state[: int(np.searchsorted(ends, share * int(ends[-1]))) + 1]
    return with_state_on_host(_with_copies(graph, chosen), chosen)


def _with_copies(graph: Graph, state: Sequence[BufferId]) -> Graph:
    """Return the graph with copying ops around the uses of some buffers."""
    builder = GraphBuilder(graph.name)
    builder.copy_storage(graph)
    for name in graph.called:
        builder.add_subgraph(name, graph.subgraphs[name])
    for sentence in graph.unmodeled:
        builder.note(sentence)
    users: dict[BufferId, list[OpId]] = {buffer: [] for buffer in state}
    for op, touched in enumerate(graph.structure.touches):
        for buffer in touched:
            if buffer in users:
                users[buffer].append(op)
    on_device = {
        buffer: builder.add_buffer(f"{graph.buffer_names[buffer]} on the device", int(graph.sizes[buffer]))
        for buffer in state
    }
    starts: dict[OpId, list[BufferId]] = {}
    ends: dict[OpId, list[BufferId]] = {}
    for buffer, ops in users.items():
        starts.setdefault(ops[0], []).append(buffer)
        ends.setdefault(ops[-1], []).append(buffer)
    place: dict[OpId, OpId] = {}
    for number, op in enumerate(graph.ops()):
        for buffer in starts.get(number, ()):
            name = graph.buffer_names[buffer]
            builder.add_op(f"{name} to the device", STATE_TO_DEVICE, reads=[buffer], writes=[on_device[buffer]])
        place[number] = builder.add(_renamed(op, on_device, place))
        for buffer in ends.get(number, ()):
            name = graph.buffer_names[buffer]
            builder.add_op(f"{name} to the host", STATE_TO_HOST, reads=[buffer, on_device[buffer]], mutates=[buffer])
    return builder.build()


def _renamed(op: Op, on_device: dict[BufferId, BufferId], place: dict[OpId, OpId]) -> Op:
    """Return an op that uses the copies on the device, at its new place."""

    def named(buffers: Sequence[BufferId]) -> tuple[BufferId, ...]:
        return tuple(on_device.get(buffer, buffer) for buffer in buffers)

    return msgspec.structs.replace(
        op,
        reads=named(op.reads),
        writes=named(op.writes),
        mutates=named(op.mutates),
        after=tuple(place[before] for before in op.after),
        in_place=tuple(pair for pair in op.in_place if pair[0] not in on_device),
    )
