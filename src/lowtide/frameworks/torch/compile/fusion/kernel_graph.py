"""The graph of Inductor's kernels: an op per scheduler node, a buffer per allocation."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import Node

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.torch.emit.transfers import COPY_TO_DEVICE, COPY_TO_HOST, ON_HOST
from lowtide.frameworks.torch.internals.hints import hinted_value_of, stand_in
from lowtide.frameworks.torch.internals.kernel_storage import (
    is_only_read_by,
    pairs_in_place,
    read_in_later_loops,
    stays_within,
)
from lowtide.frameworks.torch.internals.kernels import (
    KernelNode,
    KernelStorage,
    allocated_with,
    bytes_of_input,
    enclosing_buffer,
    freeable_inputs,
    has_effects,
    keeps_alive,
    names_before_overwriting,
    operand_layouts,
    output_names,
    pytorch_call,
    sizes_of_buffers,
    source_graph,
    unpacked_tuple,
    used_results,
)
from lowtide.frameworks.torch.internals.operators import n_results, overload_of
from lowtide.frameworks.torch.internals.tensors import bytes_of
from lowtide.frameworks.torch.reading.scratch import scratch_bytes


@dataclass(frozen=True, slots=True)
class KnownInputs:
    """Facts that kernels do not show."""

    away: Collection[str] = ()
    """Inputs freed at their last use."""
    storages: Mapping[str, KernelStorage] = field(default_factory=dict[str, KernelStorage])
    """Storages of saved inputs. A view holds its whole base."""


NO_KNOWN_INPUTS = KnownInputs()


def graph_of_kernels(nodes: Sequence[KernelNode], given: KnownInputs = NO_KNOWN_INPUTS) -> Graph:
    """Return the graph of scheduler nodes, with Inductor's size hints.

    Inputs that the caller keeps are left out. Host tensors count 0 bytes. Overwritten buffers keep their first name. A
    buffer written in parts exists from its first part on.
    """
    sizes = sizes_of_buffers()
    wholes = _wholes(nodes)
    real = {**names_before_overwriting(), **wholes}
    outputs = {real.get(name, name) for name in output_names()}
    sizes.update(dict.fromkeys(on_host := names_on_host(nodes), (0, 0)))
    builder = GraphBuilder("kernels")
    buffers = _inputs(builder, dict.fromkeys([*freeable_inputs(nodes), *given.away]), given, outputs, on_host)
    makers: dict[str, OpId] = {}
    for node in nodes:
        reads, after = _dependencies(node, real, buffers, makers)
        written: list[BufferId] = []
        pairs = list(pairs_in_place(node))
        stored = _stored(node, pairs)
        for buffer in node.get_outputs():
            own_name: str = buffer.get_name()
            name = wholes.get(own_name, own_name)
            if name != own_name and name in buffers:
                reads.extend({buffers[name]}.difference(reads, written))
            elif name != own_name:
                written.append(_add(builder, buffers, name, sizes, outputs))
            elif name not in real and name not in buffers and name in stored:
                parts = [part.get_name() for part in allocated_with(buffer)]
                written.extend(_add(builder, buffers, part, sizes, outputs) for part in parts)
        op = builder.add_op(
            node.get_name(),
            type(node).__name__,
            reads=reads,
            writes=written,
            after=after,
            in_place=_in_place(skip_unstored(pairs, stored), buffers, reads, written),
            scratch_bytes=_scratch_of(node),
            ordered=has_effects(node) or is_copy(node),
        )
        makers.update(dict.fromkeys(node.get_buffer_names(), op))
    return builder.build()


def _inputs(
    builder: GraphBuilder, names: Iterable[str], given: KnownInputs, outputs: set[str], on_host: set[str]
) -> dict[str, BufferId]:
    """Inputs that share storage become one buffer."""
    kept = {given.storages[name] for name in outputs if name in given.storages}
    shared: dict[KernelStorage, BufferId] = {}
    buffers: dict[str, BufferId] = {}
    for name in names:
        storage = given.storages.get(name)
        if storage is not None and storage in shared:
            buffers[name] = shared[storage]
            continue
        lifetime = Lifetime.INPUT if name in outputs or storage in kept else Lifetime.DONATED
        whole = 0 if storage is None else storage.size
        size = 0 if name in on_host else max(whole, bytes_of_input(name))
        buffers[name] = builder.add_buffer(name, size, lifetime)
        if storage is not None:
            shared[storage] = buffers[name]
    return buffers


def skip_unstored(pairs: Sequence[tuple[str, str]], stored: Collection[str]) -> list[tuple[str, str]]:
    """Replace unstored inputs of in-place pairs by the buffers that they overwrite."""
    over = {made: given for given, made in pairs}
    found: list[tuple[str, str]] = []
    for given, made in pairs:
        while given in over and given not in stored:
            given = over[given]
        found.append((given, made))
    return found


def _wholes(nodes: Sequence[KernelNode]) -> dict[str, str]:
    made = {buffer.get_name(): enclosing_buffer(buffer) for node in nodes for buffer in node.get_outputs()}
    found: dict[str, str] = {}
    for name, whole in made.items():
        while whole is not None and whole in made:
            found[name] = whole
            whole = made[whole]
    return found


def _stored(node: KernelNode, pairs: Iterable[tuple[str, str]]) -> set[str]:
    made = {buffer.get_name() for buffer in node.get_outputs() if not stays_within(buffer, node)}
    made |= read_in_later_loops(node)
    ends = {buffer.get_name() for buffer in node.get_outputs() if is_only_read_by(buffer, node)}
    return made - {given for given, over in pairs if given in ends and over in made}


def _in_place(
    pairs: Iterable[tuple[str, str]],
    buffers: dict[str, BufferId],
    reads: list[BufferId],
    written: list[BufferId],
) -> list[tuple[BufferId, BufferId]]:
    found = [(buffers.get(given, -1), buffers.get(made, -1)) for given, made in pairs]
    return [(given, made) for given, made in found if given in reads and made in written]


def _scratch_of(node: KernelNode) -> int:
    call = pytorch_call(node)
    if call is None or overload_of(call.target) is None:
        return 0
    given = _given_tensors(call, node)
    own = scratch_bytes(call, lambda argument: given.get(argument, hinted_value_of(argument)))
    return own + _left_in_tuple(call, node)


def _left_in_tuple(call: Node, node: KernelNode) -> int:
    """Return the bytes of unused results, which are freed with their tuple."""
    results = hinted_value_of(call)
    if not isinstance(results, tuple):
        return 0
    taken = used_results(node)
    own = cast("tuple[Any, ...]", results)[: n_results(call.target)]
    left = [each for place, each in enumerate(own) if place not in taken]
    return sum(bytes_of(each) for each in left if isinstance(each, torch.Tensor))


def _given_tensors(call: Node, node: KernelNode) -> dict[Node, torch.Tensor]:
    layouts = operand_layouts(node)
    arguments = [part for part in call.all_input_nodes if isinstance(part.meta.get("val"), torch.Tensor)]
    if len(layouts) != len(arguments):
        return {}
    return {
        argument: stand_in(shape, strides, dtype, device)
        for argument, ((shape, strides), dtype, device) in zip(arguments, layouts, strict=True)
    }


def _dependencies(
    node: KernelNode, real: dict[str, str], buffers: dict[str, BufferId], makers: dict[str, OpId]
) -> tuple[list[BufferId], list[OpId]]:
    reads: dict[BufferId, None] = {}
    after: dict[OpId, None] = {}
    for dependency in [*node.read_writes.reads, *node.unmet_dependencies]:
        name = str(dependency.name)
        if keeps_alive(dependency) and real.get(name, name) in buffers:
            reads[buffers[real.get(name, name)]] = None
        if name in makers:
            after[makers[name]] = None
    return list(reads), list(after)


def _add(
    builder: GraphBuilder, buffers: dict[str, BufferId], name: str, sizes: dict[str, tuple[int, int]], outputs: set[str]
) -> BufferId:
    lifetime = Lifetime.OUTPUT if name in outputs else Lifetime.INTERMEDIATE
    buffers[name] = builder.add_buffer(name, max(sizes[name]), lifetime)
    return buffers[name]


def is_copy(node: KernelNode) -> bool:
    return getattr(node.node, "op_overload", None) in (COPY_TO_HOST, COPY_TO_DEVICE)


def names_on_host(nodes: Sequence[KernelNode]) -> set[str]:
    """Return the inputs and kernel results without device memory."""
    inputs = source_graph().graph.find_nodes(op="placeholder")
    names = {str(node.target) for node in inputs if ON_HOST in node.meta}
    made = {name for node in nodes if _is_to_host(node) for name in node.get_buffer_names()}
    for node in nodes:
        if unpacked_tuple(node) in made:
            names.update(node.get_buffer_names())
    return names | made


def _is_to_host(node: KernelNode) -> bool:
    return getattr(node.node, "op_overload", None) == COPY_TO_HOST
