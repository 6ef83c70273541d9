"""Move parameter updates to the host."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Graph, GraphModule, Node

from lowtide.core.index_spaces import BufferId
from lowtide.engine.offload.updates import Update
from lowtide.frameworks.torch.emit.host_updates import OPERAND_TO_HOST, PARAMETER_TO_DEVICE, UPDATE_ON_HOST
from lowtide.frameworks.torch.emit.transfers import like
from lowtide.frameworks.torch.emit.update_body import NoPiecesError, UpdateBody
from lowtide.frameworks.torch.internals.host_memory import HOST
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.lowering import Lowered
from lowtide.frameworks.torch.reading.outlined import Outlined, Work, register_update


def move_updates(
    graph: Graph, copies: Mapping[Node, Node], module: GraphModule, lowered: Lowered, updates: Sequence[Update]
) -> list[Update]:
    """Move updates in `graph`, a copy of the program, to the host. Return those that can run there.

    The program's nodes are mapped to `graph`'s by `copies`.
    """
    moved: list[Update] = []
    places = {
        buffer: place
        for place, node in enumerate(module.graph.find_nodes(op="placeholder"))
        for buffer in lowered.buffers_of[node]
    }
    for update in updates:
        try:
            body = UpdateBody(lowered, update, module)
        except NoPiecesError:
            continue
        if all(buffer in places for buffer in (*update.state, *update.returned)):
            _Move(graph, copies, body, places).apply()
            moved.append(update)
    return moved


def buffers_of_updates(lowered: Lowered) -> list[BufferId]:
    """Return buffers on the host, other than state, that updates there use."""
    of_host = (OPERAND_TO_HOST, UPDATE_ON_HOST)
    return [buffer for op in lowered.ops if op.node.target in of_host for buffer in op.writes]


class _Move:
    def __init__(
        self, graph: Graph, copies: Mapping[Node, Node], body: UpdateBody, places: Mapping[BufferId, int]
    ) -> None:
        self._graph, self._copies, self._body, self._places = graph, copies, body, places
        self._update = body.update
        self._last = copies[body.nodes[-1]]

    def apply(self) -> None:
        update = self._update
        there = {buffer: self._copied(buffer) for buffer in update.copied}
        small = [buffer for buffer in update.small if buffer in self._body.operands and buffer not in update.counts]
        given = [*(buffer for buffer in update.copied if buffer not in update.returned), *small]
        overwritten = [
            *update.state,
            *(buffer for buffer in update.returned if buffer in update.copied),
            *update.counts,
        ]
        results = [buffer for buffer in update.returned if buffer not in update.copied]
        call = self._call(there, given, overwritten, results)
        for place, buffer in enumerate(results):
            there[buffer] = self._append(operator.getitem, (call, place), value_of(call)[place])
        for buffer in update.returned:
            self._append(PARAMETER_TO_DEVICE, (self._operand(buffer), there[buffer]), None)
        self._erase()

    def _operand(self, buffer: BufferId) -> Node:
        return self._copies[self._body.operands[buffer]]

    def _copied(self, buffer: BufferId) -> Node:
        source = self._operand(buffer)
        return self._append(OPERAND_TO_HOST, (source,), like(value_of(source), HOST))

    def _call(
        self,
        there: Mapping[BufferId, Node],
        given: Sequence[BufferId],
        overwritten: Sequence[BufferId],
        results: Sequence[BufferId],
    ) -> Node:
        body, update = self._body, self._update
        program = body.program([*given, *overwritten, *results])
        changed = [*overwritten, *results]
        made = [value_of(self._operand(buffer)) for buffer in results]
        outlined = Outlined(
            run=program,
            forms=tuple((value.shape, value.stride(), value.dtype, value.device) for value in made),
            scratch_bytes=0,
            work=(Work(body.traffic_bytes),),
            parameters=tuple((changed.index(buffer), self._places[buffer]) for buffer in update.returned),
        )
        key = register_update(outlined, program.code)
        arguments = [[there.get(each) or self._operand(each) for each in each_of] for each_of in (given, overwritten)]
        numbers = [self._copies[node] for node in body.numbers]
        return self._append(UPDATE_ON_HOST, (*arguments, numbers, key), [like(value, HOST) for value in made])

    def _append(self, target: Any, args: tuple[Any, ...], value: object) -> Node:
        with self._graph.inserting_after(self._last):
            node = self._graph.call_function(target, args)
        node.meta["val"] = value
        node.meta["stack_trace"] = self._copies[self._body.nodes[-1]].meta.get("stack_trace")
        self._last = node
        return node

    def _erase(self) -> None:
        inside = [self._copies[node] for node in self._body.inside]
        gone = set(inside)
        for original, node in reversed(list(zip(self._body.inside, inside, strict=True))):
            outside = [user for user in node.users if user not in gone]
            buffers = self._body.lowered.buffers_of[original]
            if outside and len(buffers) == 1 and buffers[0] in self._body.operands:
                base = self._operand(buffers[0])
                node.replace_all_uses_with(base, lambda user: user not in gone)
            if not node.users:
                self._graph.erase_node(node)
