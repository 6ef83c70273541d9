"""Reading a captured PyTorch program into a `Graph`."""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from torch.fx import GraphModule, Node

from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.graph import Graph, GraphBuilder
from lowtide.frameworks.torch.internals.hints import gives_as_much_as_values_say
from lowtide.frameworks.torch.internals.operators import higher_order_of, op_name, overload_of, qualified_name
from lowtide.frameworks.torch.internals.process_groups import size_and_span
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.costs import flops_of, seconds_of, traffic_of
from lowtide.frameworks.torch.reading.effects import (
    CALLING,
    RETURNS_WHEN_DONE,
    arguments_by_name,
    is_opaque,
    is_random,
    is_repeatable_collective,
    keeps_order,
)
from lowtide.frameworks.torch.reading.in_place import in_place_forms
from lowtide.frameworks.torch.reading.lowering import Lowered, LoweredOp, lower, lower_callee
from lowtide.frameworks.torch.reading.scratch import has_unknown_workspace, scratch_bytes
from lowtide.frameworks.torch.reading.stack_trace import source_of


class Reading:
    """A captured program as it was read: whoever plans, applies or measures it shares one lowering and one graph.

    Both are made when first asked for, and raise UnsupportedError for nodes without tensor metadata, sparse layouts and
    ops that replace storages.
    """

    def __init__(self, captured: Captured, scratch: Callable[[Node], int] = scratch_bytes) -> None:
        """Take a program, and what tells the scratch of its nodes."""
        self.captured = captured
        self._scratch = scratch

    @cached_property
    def lowered(self) -> Lowered:
        """The program as ops over buffers: one op per node that allocates or computes, one buffer per storage."""
        return lower(self.captured.graph_module, self.captured.inputs)

    @cached_property
    def graph(self) -> Graph:
        """The program as a graph; ids of its ops and buffers are positions in `lowered`."""
        captured = self.captured
        module, notes = captured.graph_module, captured.unmodeled
        return graph_of(captured.name, module, self.lowered, notes, scratch=self._scratch)


def graph_of(
    name: str,
    module: GraphModule,
    lowered: Lowered,
    notes: tuple[str, ...] = (),
    run_once: Collection[BufferId] = (),
    after: Mapping[OpId, Sequence[OpId]] | None = None,
    scratch: Callable[[Node], int] = scratch_bytes,
) -> Graph:
    """Build the graph of a lowered program; the op ids are the positions in `lowered.ops`.

    An op that writes one of the buffers in `run_once` never runs a second time. `after` names, per op, further ops that
    must run before it. `scratch` tells what the kernel of an op allocates for itself.
    """
    builder = GraphBuilder(name)
    for note in notes:
        builder.note(note)
    spaces = _add_spaces(builder, lowered)
    for buffer in lowered.buffers:
        builder.add_buffer(buffer.name, buffer.size_bytes, buffer.lifetime, space=spaces.get(str(buffer.device), 0))
    for place, op in enumerate(lowered.ops):
        once = any(buffer in run_once for buffer in op.writes)
        waits = (after or {}).get(place, ())
        _add_op(builder, module, op, lowered, once=once, after=waits, scratch=scratch(op.node))
    return builder.build()


def _add_spaces(builder: GraphBuilder, lowered: Lowered) -> dict[str, SpaceId]:
    """Give every device a memory space, the fullest first: it is the one that a budget is for, and holds scalars."""
    held: dict[str, int] = {}
    for buffer in lowered.buffers:
        if buffer.device is not None:
            held[str(buffer.device)] = held.get(str(buffer.device), 0) + buffer.size_bytes
    return {device: builder.add_space(device) for device in sorted(held, key=lambda device: -held[device])}


def _add_op(
    builder: GraphBuilder,
    module: GraphModule,
    op: LoweredOp,
    lowered: Lowered,
    *,
    once: bool,
    after: Sequence[OpId],
    scratch: int,
) -> None:
    node = op.node
    if is_opaque(node):
        builder.note(f"op '{node.name}' ({kind_of(node)}): its effects are unknown, so it keeps its place")
    if has_unknown_workspace(node):
        builder.note(f"op '{node.name}' ({kind_of(node)}): the workspace of its kernel is not counted")
    if gives_as_much_as_values_say(node):
        builder.note(f"op '{node.name}' ({kind_of(node)}): how much it gives depends on values; planned is the most")
    ranks, span = _group_of(op)
    builder.add_op(
        node.name,
        kind_of(node),
        reads=op.reads,
        after=after,
        writes=op.writes,
        mutates=op.mutates,
        in_place=[
            (form.read, form.write)
            for form in in_place_forms(op, lowered)
            if lowered.buffers[form.read].size_bytes == lowered.buffers[form.write].size_bytes
        ],
        scratch_bytes=scratch,
        pure=not (once or op.mutates or is_random(node) or (keeps_order(node) and ranks == 1)),
        ordered=keeps_order(node),
        cost=seconds_of(node, ranks, span),
        flops=flops_of(node),
        traffic_bytes=traffic_of(node),
        ranks=ranks,
        rank_span=span,
        callees=_add_callees(builder, module, node, lowered),
        source=source_of(node),
    )


def _group_of(op: LoweredOp) -> tuple[int, int]:
    """Return how many ranks a collective that may run again has, and among how many they lie; (1, 1) for other ops."""
    if not is_repeatable_collective(op.node) or not (op.waits or op_name(op.node.target) in RETURNS_WHEN_DONE):
        return 1, 1
    return size_and_span(arguments_by_name(op.node)["group_name"]) or (1, 1)


def _add_callees(builder: GraphBuilder, module: GraphModule, node: Node, lowered: Lowered) -> list[str]:
    if higher_order_of(node.target) is None:
        return []
    names: list[str] = []
    for argument in node.all_input_nodes:
        body = getattr(module, str(argument.target), None) if argument.op == "get_attr" else None
        if isinstance(body, GraphModule):
            name = str(argument.target)
            builder.add_subgraph(name, graph_of(name, body, lower_callee(lowered, module, name)))
            names.append(name)
    return names


def kind_of(node: Node) -> str:
    """Return the kind of a node's op: its aten name, the kind of call, or the Python function's name."""
    target: Any = node.target
    if overload_of(target) is not None:
        return qualified_name(target).replace("::", ".")
    if higher_order_of(target) is not None:
        return CALLING.get(target.name(), str(target.name()))
    prefix = "python" if target.__module__ in (operator.__name__, "_operator", "math") else "torch"
    return f"{prefix}.{target.__name__}"
