"""Optimizer state and parameters in a graph, moved to the host."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec.structs
import numpy as np

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import (
    OPERAND_TO_HOST,
    PARAMETER_FROM_HOST,
    PARAMETER_TO_DEVICE,
    STATE_TO_DEVICE,
    STATE_TO_HOST,
    UPDATE_ON_HOST,
    Graph,
    GraphBuilder,
    Mask,
    Op,
)
from lowtide.engine.offload.host_space import HOST, Host, find_link, with_state_on_host
from lowtide.engine.offload.updates import LEAST_BYTES, Update, UpdatePlace, updates_to_move


def state_of(graph: Graph) -> list[BufferId]:
    """Return the device's persistent buffers first used by an op that overwrites them, largest first."""
    found = _large(graph, _overwritten_by_first_use(graph))
    return sorted(found, key=lambda buffer: (-int(graph.sizes[buffer]), buffer))


def parameters_of(graph: Graph) -> list[BufferId]:
    """Return the device's other persistent buffers."""
    return _large(graph, ~_overwritten_by_first_use(graph))


def parts_to_move(sizes: Sequence[int], share: float) -> list[int]:
    """Return positions of parts that have a share of all bytes, those first that free the most bytes.

    Many equal parts free more than a large one: they return one after another, so they need the room of one. They are
    spread over the program, so that computation hides their copies.
    """
    groups: dict[int, list[int]] = {}
    for place, size in enumerate(sizes):
        groups.setdefault(size, []).append(place)
    ranked: list[int] = []
    for _, group in sorted(groups.items(), key=lambda each: (-each[0] * (len(each[1]) - 1), -each[0])):
        width = len(group).bit_length()
        ranked += [group[index] for index in sorted(range(len(group)), key=lambda index: f"{index:0{width}b}"[::-1])]
    return _part_of(ranked, [sizes[place] for place in ranked], share)


def _overwritten_by_first_use(graph: Graph) -> Mask:
    first: dict[BufferId, bool] = {}
    for reads, mutates in zip(graph.reads, graph.mutates, strict=True):
        for buffer in (*mutates, *reads):
            first.setdefault(buffer, buffer in mutates)
    mask = np.zeros(len(graph.sizes), np.bool_)
    mask[[buffer for buffer, overwritten in first.items() if overwritten]] = True
    return mask


def _large(graph: Graph, wanted: Mask) -> list[BufferId]:
    chosen = wanted & graph.persistent & (graph.buffer_spaces == 0) & (graph.sizes >= LEAST_BYTES)
    return np.flatnonzero(chosen).tolist()


def _part_of(ranked: Sequence[int], sizes: Sequence[int], share: float) -> list[int]:
    if share <= 0 or not ranked:
        return []
    ends = np.cumsum(sizes)
    return list(ranked[: int(np.searchsorted(ends, share * int(ends[-1]))) + 1])


def state_on_host(graph: Graph, share: float, host: Host, place: UpdatePlace = "device") -> Graph | None:
    """Return a graph with a share of its state on its host, updated on the device or the host.

    A share above 1 also moves parameters: 1.5 is all state and half of the parameters. A plan may repeat copies of
    parameters to the device before their update. For an update on the host, the gradient is copied there and the new
    parameter, if it belongs on the device, back. Returns None without a link to a host, buffers to move, or updates.
    """
    link = find_link(graph, 0)
    all_state, all_parameters = state_of(graph), parameters_of(graph)
    state = _part_of(all_state, graph.sizes[all_state].tolist(), min(share, 1.0))
    chosen = parts_to_move(graph.sizes[all_parameters].tolist(), share - 1.0)
    parameters = [all_parameters[place] for place in chosen]
    if link is None or not (parameters or (state and share <= 1.0)):
        return None
    updates = updates_to_move(graph, state, link, host.update_bytes_per_s, place, parameters)
    if place != "device" and not updates:
        return None
    moved = _Moved(graph, link.host, state, parameters, updates).build()
    return with_state_on_host(moved, [*state, *parameters], host.update_bytes_per_s if updates else None)


@dataclass(frozen=True, slots=True)
class _DeviceVisit:
    buffer: BufferId
    there: BufferId
    ops: Sequence[OpId]
    kind: str
    returns: bool


@dataclass(eq=False)
class _Moved:
    graph: Graph
    host: int
    state: Sequence[BufferId]
    parameters: Sequence[BufferId]
    updates: Sequence[Update]
    builder: GraphBuilder = field(init=False)
    places: dict[OpId, OpId] = field(default_factory=dict[OpId, OpId])

    def __post_init__(self) -> None:
        graph = self.graph
        self.builder = GraphBuilder(graph.name)
        self.builder.copy_storage(graph)
        for name in graph.called:
            self.builder.add_subgraph(name, graph.subgraphs[name])
        for sentence in graph.unmodeled:
            self.builder.note(sentence)

    def build(self) -> Graph:
        of_update = {op: update for update in self.updates for op in update.ops}
        begins: dict[OpId, list[_DeviceVisit]] = {}
        ends: dict[OpId, list[_DeviceVisit]] = {}
        there: dict[OpId, dict[BufferId, BufferId]] = {}
        for visit in self._visits(of_update):
            begins.setdefault(visit.ops[0], []).append(visit)
            ends.setdefault(visit.ops[-1], []).append(visit)
            for op in visit.ops:
                there.setdefault(op, {})[visit.buffer] = visit.there
        for number, op in enumerate(self.graph.ops()):
            update = of_update.get(number)
            if update is not None:
                if number == update.ops[-1]:
                    self._add_update(update)
                continue
            for each in begins.get(number, ()):
                self._add_copy(each.buffer, each.kind, reads=[each.buffer], writes=[each.there])
            self.places[number] = self.builder.add(_renamed(op, there.get(number, {}), self.places))
            for each in ends.get(number, ()):
                if each.returns:
                    self._add_copy(each.buffer, STATE_TO_HOST, reads=[each.buffer, each.there], mutates=[each.buffer])
        return self.builder.build()

    def _visits(self, of_update: Mapping[OpId, Update]) -> Iterator[_DeviceVisit]:
        graph = self.graph
        parameters = set(self.parameters)
        for buffer in (*self.state, *self.parameters):
            users = graph.structure.users[buffer].tolist()
            changes = [op for op in users if buffer in graph.mutates[op]]
            first = min(changes, default=graph.n_ops) if buffer in parameters else 0
            on_device = [op for op in users if op not in of_update]
            parts = (
                (PARAMETER_FROM_HOST, "for reading", [op for op in on_device if op < first]),
                (STATE_TO_DEVICE, "on the device", [op for op in on_device if op >= first]),
            )
            for kind, words, ops in parts:
                if ops:
                    made = self.builder.add_buffer(f"{graph.buffer_names[buffer]} {words}", int(graph.sizes[buffer]))
                    yield _DeviceVisit(buffer, made, ops, kind, returns=not set(ops).isdisjoint(changes))

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
        name = f"{self.graph.buffer_names[buffer]} to the {where}{' for reading' * (kind == PARAMETER_FROM_HOST)}"
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
