"""Building the graph of a captured program."""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch.fx import GraphModule, Node

from lowtide.core.index_spaces import BufferId, OpId, SpaceId
from lowtide.engine.graph import Graph, GraphBuilder
from lowtide.frameworks.torch.internals.distributed import size_and_span
from lowtide.frameworks.torch.internals.hints import has_data_dependent_size
from lowtide.frameworks.torch.internals.operators import higher_order_of, op_name, overload_of, qualified_name
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
from lowtide.frameworks.torch.reading.library_ops import is_known_op
from lowtide.frameworks.torch.reading.lowering import Lowered, LoweredOp, lower, lower_callee
from lowtide.frameworks.torch.reading.repeatable_draws import can_draw_again
from lowtide.frameworks.torch.reading.scratch import scratch_bytes
from lowtide.frameworks.torch.reading.stack_trace import source_of
from lowtide.frameworks.torch.reading.workspaces import is_unmeasured


@dataclass(eq=False)
class Reading:
    """A captured program with its lowered form and graph, each computed once."""

    captured: Captured
    scratch: Callable[[Node], int] = scratch_bytes

    @cached_property
    def lowered(self) -> Lowered:
        return lower(self.captured.graph_module, self.captured.inputs, repeats_draws=True)

    @cached_property
    def graph(self) -> Graph:
        program = self.captured
        return graph_of(program.name, program.graph_module, self.lowered, program.unmodeled, scratch=self.scratch)


def graph_of(
    name: str,
    module: GraphModule,
    lowered: Lowered,
    notes: tuple[str, ...] = (),
    run_once: Collection[BufferId] = (),
    after: Mapping[OpId, Sequence[OpId]] | None = None,
    scratch: Callable[[Node], int] = scratch_bytes,
    *,
    in_place: bool = True,
) -> Graph:
    """Return the graph of a lowered program; op ids are positions in `lowered.ops`.

    Ops that write a buffer in `run_once` are never recomputed. `after` lists more predecessors of an op. `scratch`
    returns a node's scratch bytes. Without `in_place` there are no in-place pairs.
    """
    builder = GraphBuilder(name)
    for note in notes:
        builder.note(note)
    spaces = _add_spaces(builder, lowered)
    unmeasured: dict[str, list[str]] = {}
    unknown: dict[str, list[str]] = {}
    for buffer in lowered.buffers:
        builder.add_buffer(buffer.name, buffer.size_bytes, buffer.lifetime, space=spaces.get(str(buffer.device), 0))
    for place, op in enumerate(lowered.ops):
        node = op.node
        callees = _add_callees(builder, module, node, lowered)
        _note_limits(builder, node)
        if is_unmeasured(node):
            unmeasured.setdefault(kind_of(node), []).append(node.name)
        elif not is_known_op(node):
            unknown.setdefault(kind_of(node), []).append(node.name)
        ranks, span = _group_of(op)
        once = any(buffer in run_once for buffer in op.writes)
        builder.add_op(
            node.name,
            kind_of(node),
            reads=op.reads,
            after=(after or {}).get(place, ()),
            writes=op.writes,
            mutates=op.mutates,
            in_place=_in_place_pairs(op, lowered) if in_place else [],
            scratch_bytes=max(map(scratch, op.kernels)),
            pure=not (once or op.mutates or is_random(node) or (keeps_order(node) and ranks == 1)),
            ordered=keeps_order(node),
            repeatable=lowered.repeats_draws and not (once or op.mutates) and can_draw_again(node),
            cost=sum(seconds_of(each, ranks, span) for each in op.kernels),
            flops=sum(map(flops_of, op.kernels)),
            traffic_bytes=sum(map(traffic_of, op.kernels)),
            ranks=ranks,
            rank_span=span,
            callees=callees,
            source=source_of(node),
        )
    _note_kernels(builder, unmeasured, "the workspace of the kernel is not modeled, since it cannot run here alone")
    _note_kernels(builder, unknown, "memory that a custom kernel allocates beside its results is not modeled")
    return builder.build()


def sizes_graph(name: str, lowered: Lowered) -> Graph:
    """Return the graph of a lowered program without calls of graphs: its accesses and sizes, not its costs."""
    builder = GraphBuilder(name)
    spaces = _add_spaces(builder, lowered)
    for buffer in lowered.buffers:
        builder.add_buffer(buffer.name, buffer.size_bytes, buffer.lifetime, space=spaces.get(str(buffer.device), 0))
    for op in lowered.ops:
        builder.add_op(op.node.name, "", reads=op.reads, writes=op.writes, mutates=op.mutates, pure=not op.mutates)
    return builder.build()


def _note_kernels(builder: GraphBuilder, ops: Mapping[str, Sequence[str]], what: str) -> None:
    for kind, names in ops.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        builder.note(f"op '{names[0]}'{more} ({kind}): {what}")


def _add_spaces(builder: GraphBuilder, lowered: Lowered) -> dict[str, SpaceId]:
    """Add a memory space per device, the fullest first, which also holds scalars."""
    held: dict[str, int] = {}
    for buffer in lowered.buffers:
        if buffer.device is not None:
            held[str(buffer.device)] = held.get(str(buffer.device), 0) + buffer.size_bytes
    return {device: builder.add_space(device) for device in sorted(held, key=lambda device: -held[device])}


def _in_place_pairs(op: LoweredOp, lowered: Lowered) -> list[tuple[BufferId, BufferId]]:
    pairs = [(form.read, form.write) for form in in_place_forms(op, lowered)]
    return [pair for pair in pairs if lowered.buffers[pair[0]].size_bytes == lowered.buffers[pair[1]].size_bytes]


def _note_limits(builder: GraphBuilder, node: Node) -> None:
    if is_opaque(node):
        builder.note(f"op '{node.name}' ({kind_of(node)}): unknown effects, so it stays in program order")
    if has_data_dependent_size(node):
        builder.note(f"op '{node.name}' ({kind_of(node)}): its size depends on values; planned at its upper bound")


def _group_of(op: LoweredOp) -> tuple[int, int]:
    """Return ranks and span of a repeatable collective, else (1, 1)."""
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
    target: Any = node.target
    if overload_of(target) is not None:
        return qualified_name(target).replace("::", ".")
    if higher_order_of(target) is not None:
        return CALLING.get(target.name(), str(target.name()))
    prefix = "python" if target.__module__ in (operator.__name__, "_operator", "math") else "torch"
    return f"{prefix}.{target.__name__}"
