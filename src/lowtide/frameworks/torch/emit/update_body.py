"""The program of an update on the host, in pieces that stay in the processor's cache."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.core.index_spaces import BufferId
from lowtide.engine.offload.updates import Update
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.host_memory import HOST
from lowtide.frameworks.torch.internals.nodes import graph_module, value_of
from lowtide.frameworks.torch.internals.operators import is_view
from lowtide.frameworks.torch.internals.tensors import is_dense, memory_of
from lowtide.frameworks.torch.reading.effects import overwritten_nodes
from lowtide.frameworks.torch.reading.lowering import Lowered

_PIECE = 2**17
"""Elements of a piece. Six float32 tensors of this size fit into two cores' second-level caches."""


class NoPiecesError(Exception):
    """An update cannot run in pieces."""


@dataclass(eq=False)
class UpdateBody:
    """Builds an update's programs: small ops run once, others by pieces."""

    lowered: Lowered
    update: Update
    module: GraphModule
    operands: dict[BufferId, Node] = field(default_factory=dict[BufferId, Node])
    """The first outside node by which the update uses each buffer."""
    numbers: dict[Node, None] = field(default_factory=dict[Node, None])
    form: torch.Tensor = field(init=False)
    nodes: list[Node] = field(init=False)
    inside: dict[Node, None] = field(init=False)
    """Its ops, with used elements and views of their results."""

    def __post_init__(self) -> None:
        """Raise NoPiecesError for a tensor with another form than the state."""
        lowered, update = self.lowered, self.update
        self.nodes = [lowered.ops[op].node for op in sorted({*update.ops, *update.again})]
        self.inside = inside = self._with_elements()
        state = next(
            node
            for node in self.module.graph.find_nodes(op="placeholder")
            if lowered.buffers_of[node] == (update.state[0],)
        )
        self.form = value_of(state)
        for node in inside:
            self._check(node)
            for source in node.all_input_nodes:
                if source not in inside:
                    self._add_operand(source)
        self._check_order()

    def _with_elements(self) -> dict[Node, None]:
        inside = dict.fromkeys(self.nodes)
        first = min(inside)
        waiting = sorted({each for node in self.nodes for each in node.all_input_nodes if each > first})
        for node in waiting:  # in program order, so that views of views follow
            path = [node]
            while path[-1] not in inside and path[-1].op == "call_function" and path[-1].all_input_nodes:
                path.append(path[-1].all_input_nodes[0])
            if path[-1] in inside:
                inside.update(dict.fromkeys(path))
        return dict.fromkeys(sorted(inside))

    def _add_operand(self, source: Node) -> None:
        value = value_of(source)
        if not isinstance(value, torch.Tensor):
            self.numbers[source] = None
            return
        (buffer,) = self.lowered.buffers_of[source]
        self._check_form(value)
        self.operands.setdefault(buffer, source)

    def _check(self, node: Node) -> None:
        results = pytree.tensors_in(value_of(node))
        for value in results:
            self._check_form(value)
        operands = pytree.tensors_in([value_of(each) for each in node.all_input_nodes])
        if any(value.numel() > 1 for value in results) and all(value.numel() == 1 for value in operands):
            raise NoPiecesError

    def _check_form(self, value: torch.Tensor) -> None:
        form = self.form
        has_form = (value.shape, value.stride()) == (form.shape, form.stride()) and value.storage_offset() == 0
        if value.numel() != 1 and not (has_form and is_dense(value)):
            raise NoPiecesError

    def _check_order(self) -> None:
        """Raise NoPiecesError if a small op changes an earlier op's operand, because small ops run first."""
        read: set[BufferId] = set()
        for node in self.nodes:
            if not _is_small(node):
                read |= {buffer for each in node.all_input_nodes for buffer in self.lowered.buffers_of[each]}
            elif read & {buffer for each in overwritten_nodes(node) for buffer in self.lowered.buffers_of[each]}:
                raise NoPiecesError

    @property
    def traffic_bytes(self) -> int:
        update = self.update
        read = (*update.copied, *update.state, *update.small)
        written = (*update.returned, *update.state, *update.counts)
        return sum(self.lowered.buffers[buffer].size_bytes for buffer in (*read, *written))

    def program(self, order: Sequence[BufferId]) -> "UpdateProgram":
        """Return the update as a function of these operands, then its numbers."""
        small = [node for node in self.inside if _is_small(node)]
        large = [node for node in self.inside if not _is_small(node)]
        is_large = [value_of(self.operands[buffer]).numel() > 1 for buffer in order]
        shared = [node for node in small if any(user in large for user in node.users)]
        first = self._graph(small, [buffer for buffer, big in zip(order, is_large, strict=True) if not big], (), shared)
        pieces = self._graph(large, order, shared, ())
        return UpdateProgram(is_large, graph_module(self.module, first), graph_module(self.module, pieces))

    def _graph(
        self, nodes: Sequence[Node], operands: Sequence[BufferId], given: Sequence[Node], results: Sequence[Node]
    ) -> Graph:
        graph = Graph()
        of_buffer = {buffer: graph.placeholder(f"operand{place}") for place, buffer in enumerate(operands)}
        made = {node: graph.placeholder(f"given{place}") for place, node in enumerate(given)}
        made |= {node: graph.placeholder(f"number{place}") for place, node in enumerate(self.numbers)}

        def value(node: Node) -> Node:
            return made[node] if node in made else of_buffer[self.lowered.buffers_of[node][0]]

        for node in nodes:
            if is_view(node.target):  # of the same form
                made[node] = value(node.all_input_nodes[0])
                continue
            copied = graph.node_copy(node, value)
            if "device" in copied.kwargs:
                copied.kwargs = {**copied.kwargs, "device": HOST}
            made[node] = copied
        graph.output([made[node] for node in results])
        return graph


@dataclass(eq=False)
class UpdateProgram:
    is_large: Sequence[bool]
    first: GraphModule
    pieces: GraphModule

    def __call__(self, *arguments: Any) -> tuple[()]:
        n_operands = len(self.is_large)
        operands, numbers = arguments[:n_operands], arguments[n_operands:]
        pairs = list(zip(operands, self.is_large, strict=True))
        given = self.first(*(each for each, big in pairs if not big), *numbers)
        whole = [memory_of(each) if big else each for each, big in pairs]
        n_elements = max(each.numel() for each, big in pairs if big)
        for start in range(0, n_elements, _PIECE):
            end = min(start + _PIECE, n_elements)
            piece = [each[start:end] if big else each for each, big in zip(whole, self.is_large, strict=True)]
            self.pieces(*piece, *given, *numbers)
        return ()

    @property
    def code(self) -> str:
        return f"{self.first.code}\n{self.pieces.code}"


def _is_small(node: Node) -> bool:
    values = pytree.tensors_in([value_of(each) for each in (node, *node.all_input_nodes)])
    return all(math.prod(value.shape) == 1 for value in values)
