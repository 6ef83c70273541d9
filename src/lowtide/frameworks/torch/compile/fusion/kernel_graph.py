"""The graph of Inductor's kernels: what its scheduler is about to run, as a program over buffers."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

import torch
from torch.fx import Node

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.torch.compile.fusion.host_buffers import is_copy, names_on_host
from lowtide.frameworks.torch.compile.fusion.known_inputs import NOTHING_KNOWN, KernelStorage, KnownInputs
from lowtide.frameworks.torch.internals.hints import hinted_value_of, stand_in
from lowtide.frameworks.torch.internals.kernel_storage import (
    is_only_read_by,
    pairs_in_place,
    read_in_later_loops,
    stays_within,
)
from lowtide.frameworks.torch.internals.kernels import (
    KernelNode,
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
    used_results,
)
from lowtide.frameworks.torch.internals.operators import n_results
from lowtide.frameworks.torch.internals.tensors import bytes_of
from lowtide.frameworks.torch.reading.scratch import scratch_bytes


def graph_of_kernels(nodes: Sequence[KernelNode], given: KnownInputs = NOTHING_KNOWN) -> Graph:
    """Return the graph of scheduler nodes: one op per kernel, one buffer per allocation, sizes as Inductor hints them.

    Inputs that the caller keeps are left out; those that it gives away are donated. `given` says what of the inputs
    cannot be told here. What lies on the host counts 0 bytes. A buffer that is overwritten keeps the name it was made
    with, and one that is made in parts is there from the first of them on.
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
            in_place=_in_place(past_unstored(pairs, stored), buffers, reads, written),
            scratch_bytes=_scratch_of(node),
            ordered=has_effects(node) or is_copy(node),
        )
        makers.update(dict.fromkeys(node.get_buffer_names(), op))
    return builder.build()


def _inputs(
    builder: GraphBuilder, names: Iterable[str], given: KnownInputs, outputs: set[str], on_host: set[str]
) -> dict[str, BufferId]:
    """Add the inputs that end at their last use, one buffer for those that share storage."""
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


def past_unstored(pairs: Sequence[tuple[str, str]], stored: Collection[str]) -> list[tuple[str, str]]:
    """Return pairs in which what has no storage of its own stands for what it is written over itself."""
    over = {made: given for given, made in pairs}
    found: list[tuple[str, str]] = []
    for given, made in pairs:
        while given in over and given not in stored:
            given = over[given]
        found.append((given, made))
    return found


def _wholes(nodes: Sequence[KernelNode]) -> dict[str, str]:
    """Return, per buffer that is a part of another one, the name of the largest that it is a part of."""
    made = {buffer.get_name(): enclosing_buffer(buffer) for node in nodes for buffer in node.get_outputs()}
    found: dict[str, str] = {}
    for name, whole in made.items():
        while whole is not None and whole in made:
            found[name] = whole
            whole = made[whole]
    return found


def _stored(node: KernelNode, pairs: Iterable[tuple[str, str]]) -> set[str]:
    """Return the results of a kernel that need storage of their own: not what it makes another result over."""
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
    """Return what a kernel of PyTorch's own takes for itself while it runs."""
    call = pytorch_call(node)
    if call is None:
        return 0
    given = _given_tensors(call, node)
    own = scratch_bytes(call, lambda argument: given.get(argument, hinted_value_of(argument)))
    return own + _left_in_tuple(call, node)


def _left_in_tuple(call: Node, node: KernelNode) -> int:
    """Return the bytes of results that nothing takes, which go with the tuple: a second run may be for one of them.

    What the kernel overwrites stands behind its results.
    """
    results = hinted_value_of(call)
    if not isinstance(results, tuple):
        return 0
    taken = used_results(node)
    own = cast("tuple[Any, ...]", results)[: n_results(call.target)]
    left = [each for place, each in enumerate(own) if place not in taken]
    return sum(bytes_of(each) for each in left if isinstance(each, torch.Tensor))


def _given_tensors(call: Node, node: KernelNode) -> dict[Node, torch.Tensor]:
    """Return stand-ins, in the layouts that Inductor chose, for the tensors that a kernel of PyTorch's own is given."""
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
    """Return the buffers that a kernel keeps alive, and the kernels that it must follow."""
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
