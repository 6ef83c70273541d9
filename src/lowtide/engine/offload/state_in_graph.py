"""Optimizer state in a graph, moved to the host with its updates."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec.structs
import numpy as np

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import (
    OPERAND_TO_HOST,
    PARAMETER_TO_DEVICE,
    STATE_TO_DEVICE,
    STATE_TO_HOST,
    UPDATE_ON_HOST,
    Graph,
    GraphBuilder,
    Op,
)
from lowtide.engine.offload.host_space import HOST, Host, find_link, with_state_on_host
from lowtide.engine.offload.updates import LEAST_BYTES, Update, UpdatePlace, updates_to_move


def state_of(graph: Graph) -> list[BufferId]:
    """Return the device's persistent buffers first used by an op that overwrites them, largest first."""
    first: dict[BufferId, bool] = {}
    for reads, mutates in zip(graph.reads, graph.mutates, strict=True):
        for buffer in (*mutates, *reads):
            first.setdefault(buffer, buffer in mutates)
    chosen = graph.persistent & (graph.buffer_spaces == 0) & (graph.sizes >= LEAST_BYTES)
    found = [buffer for buffer in np.flatnonzero(chosen).tolist() if first.get(buffer)]
    return sorted(found, key=lambda buffer: (-int(graph.sizes[buffer]), buffer))


def state_on_host(graph: Graph, share: float, host: Host, place: UpdatePlace = "device") -> Graph | None:
    """Return a graph with a share of its state on its host, updated on the device or the host.

    State updated on the device is copied there before its uses and back after them. For an update on the host, the
    gradient is copied there and the new parameter back. Returns None without a link to a host, such state, or updates.
    """
    state = state_of(graph)
    ends = np.cumsum(graph.sizes[state])
    link = find_link(graph, 0)
    if link is None or not state or not share:
        return None
    chosen = state[: int(np.searchsorted(ends, share * int(ends[-1]))) + 1]
    updates = updates_to_move(graph, chosen, link, host.update_bytes_per_s, place)
    if place != "device" and not updates:
        return None
    moved = _Moved(graph, link.host, chosen, updates).build()
    return with_state_on_host(moved, chosen, host.update_bytes_per_s if updates else None)


@dataclass(eq=False)
class _Moved:
    """Builds the graph with updates on the host and copying ops."""

    graph: Graph
    host: int
    state: Sequence[BufferId]
    updates: Sequence[Update]
    builder: GraphBuilder = field(init=False)
    places: dict[OpId, OpId] = field(default_factory=dict[OpId, OpId])
    """By op of the graph, its op or that of its update."""

    def __post_init__(self) -> None:
        graph = self.graph
        self.builder = GraphBuilder(graph.name)
        self.builder.copy_storage(graph)
        for name in graph.called:
            self.builder.add_subgraph(name, graph.subgraphs[name])
        for sentence in graph.unmodeled:
            self.builder.note(sentence)

    def build(self) -> Graph:
        graph, builder = self.graph, self.builder
        of_update = {op: update for update in self.updates for op in update.ops}
        on_host = {buffer for update in self.updates for buffer in update.state}
        on_device = {
            buffer: builder.add_buffer(f"{graph.buffer_names[buffer]} on the device", int(graph.sizes[buffer]))
            for buffer in self.state
            if buffer not in on_host
        }
        starts, ends = self._first_and_last_uses(on_device)
        for number, op in enumerate(graph.ops()):
            update = of_update.get(number)
            if update is not None:
                if number == update.ops[-1]:
                    self._add_update(update)
                continue
            for buffer in starts.get(number, ()):
                self._add_copy(buffer, STATE_TO_DEVICE, reads=[buffer], writes=[on_device[buffer]])
            self.places[number] = builder.add(_renamed(op, on_device, self.places))
            for buffer in ends.get(number, ()):
                self._add_copy(buffer, STATE_TO_HOST, reads=[buffer, on_device[buffer]], mutates=[buffer])
        return builder.build()

    def _first_and_last_uses(
        self, buffers: dict[BufferId, BufferId]
    ) -> tuple[dict[OpId, list[BufferId]], dict[OpId, list[BufferId]]]:
        starts: dict[OpId, list[BufferId]] = {}
        ends: dict[OpId, list[BufferId]] = {}
        for buffer in buffers:
            users = self.graph.structure.users[buffer].tolist()
            starts.setdefault(users[0], []).append(buffer)
            ends.setdefault(users[-1], []).append(buffer)
        return starts, ends

    def _add_copy(
        self,
        buffer: BufferId,
        kind: str,
        *,
        reads: Sequence[BufferId],
        writes: Sequence[BufferId] = (),
        mutates: Sequence[BufferId] = (),
    ) -> None:
        where = HOST if kind in (STATE_TO_HOST, OPERAND_TO_HOST) else "device"
        name = f"{self.graph.buffer_names[buffer]} to the {where}"
        self.builder.add_op(name, kind, reads=reads, writes=writes, mutates=mutates)

    def _add_update(self, update: Update) -> None:
        graph, there = self.graph, dict[BufferId, BufferId]()
        for buffer in dict.fromkeys([*update.copied, *update.returned]):
            name = f"{graph.buffer_names[buffer]} on the host"
            there[buffer] = self.builder.add_buffer(name, int(graph.sizes[buffer]), space=self.host)
        for buffer in update.copied:
            self._add_copy(buffer, OPERAND_TO_HOST, reads=[buffer], writes=[there[buffer]])
        changed = [there[buffer] for buffer in update.returned if buffer in update.copied]
        op = self.builder.add_op(
            f"update of {graph.buffer_names[(*update.returned, *update.state)[0]]}",
            UPDATE_ON_HOST,
            reads=[*(there[buffer] for buffer in update.copied), *update.state, *update.small],
            writes=[there[buffer] for buffer in update.returned if buffer not in update.copied],
            mutates=[*update.state, *changed, *update.counts],
            source=graph.sources[update.ops[-1]],
        )
        self.places.update(dict.fromkeys(update.ops, op))
        for buffer in update.returned:
            self._add_copy(buffer, PARAMETER_TO_DEVICE, reads=[there[buffer]], mutates=[buffer])


def _renamed(op: Op, on_device: dict[BufferId, BufferId], place: dict[OpId, OpId]) -> Op:
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
