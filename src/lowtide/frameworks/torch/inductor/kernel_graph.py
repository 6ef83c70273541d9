"""The graph of Inductor's kernels: what its scheduler is about to run, as a program over buffers."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tag
from torch._inductor import config
from torch._inductor.dependencies import WeakDep
from torch._inductor.ir import ExternKernel, MultiOutput, MultiOutputLayout, RandomSeeds
from torch._inductor.memory import compute_size_for_scheduler_buffer, get_freeable_input_buf
from torch._inductor.scheduler import OutputNode
from torch._inductor.utils import contains_collective, contains_wait
from torch._inductor.virtualized import V
from torch.fx import Node
from torch.utils._ordered_set import OrderedSet

from lowtide.frameworks.torch.hints import hinted_value_of, stand_in
from lowtide.frameworks.torch.inductor.host_buffers import is_copy, names_on_host
from lowtide.frameworks.torch.inductor.kernels_in_place import pairs_in_place
from lowtide.frameworks.torch.scratch import scratch_bytes
from lowtide.graph import Graph, GraphBuilder, Lifetime

KernelNode = Any
"""Inductor's `BaseSchedulerNode`: one kernel, before or after fusion."""


def graph_of_kernels(nodes: Sequence[KernelNode]) -> Graph:
    """Return the graph of scheduler nodes: one op per kernel, one buffer per allocation, sizes as Inductor hints them.

    Inputs that the caller keeps are left out; what the caller gives away is donated. What lies on the host takes
    nothing. A buffer that is overwritten keeps the name it was made with.
    """
    scheduler = V.graph.scheduler
    real: dict[str, str] = scheduler.mutation_real_name
    sizes: dict[str, tuple[int, int]] = compute_size_for_scheduler_buffer(scheduler.name_to_buf)
    outputs: set[str] = {real.get(str(name), str(name)) for name in V.graph.get_output_names() if name}
    sizes.update(dict.fromkeys(on_host := names_on_host(nodes), (0, 0)))
    builder = GraphBuilder("kernels")
    buffers: dict[str, int] = {}
    for name in get_freeable_input_buf(list(nodes), OrderedSet(V.graph.graph_inputs.keys())):
        lifetime = Lifetime.INPUT if name in outputs else Lifetime.DONATED
        size = 0 if name in on_host else _bytes_of_input(name)
        buffers[name] = builder.add_buffer(name, size, lifetime)
    makers: dict[str, int] = {}
    for node in nodes:
        reads, after = _dependencies(node, real, buffers, makers)
        written: list[int] = []
        for buffer in node.get_outputs():
            name = buffer.get_name()
            if name not in real and name not in buffers and not _stays_within(buffer, node):
                parts = [part.get_name() for part in _parts_of(buffer, real)]
                written.extend(_add(builder, buffers, part, sizes, outputs) for part in parts)
        op = builder.add_op(
            node.get_name(),
            type(node).__name__,
            reads=reads,
            writes=written,
            after=after,
            in_place=_in_place(node, buffers, reads, written),
            scratch_bytes=_scratch_of(node),
            ordered=_keeps_order(node),
        )
        makers.update(dict.fromkeys(node.get_buffer_names(), op))
    return builder.build()


def _bytes_of_input(name: str) -> int:
    """Return the size of an input as a whole; Inductor counts what the first kernel to read it reads."""
    given: Any = V.graph.graph_inputs[name]
    shape, strides = (V.graph.sizevars.optimization_hints(each) for each in (given.get_size(), given.get_stride()))
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return (last + 1) * given.get_dtype().itemsize if all(shape) else 0


def _keeps_order(node: KernelNode) -> bool:
    """Tell whether a kernel must keep its place among others of its kind: draws, collectives, copies, side effects."""
    parts = [part.node for part in node.get_nodes()]
    draws = any(
        isinstance(part, RandomSeeds) or Tag.nondeterministic_seeded in getattr(part.op_overload, "tags", ())
        for part in parts
        if isinstance(part, ExternKernel)
    )
    return bool(draws or is_copy(node) or contains_collective(node) or contains_wait(node) or node.has_side_effects())


def _in_place(node: KernelNode, buffers: dict[str, int], reads: list[int], written: list[int]) -> list[tuple[int, int]]:
    pairs = [(buffers.get(given, -1), buffers.get(made, -1)) for given, made in pairs_in_place(node)]
    return [(given, made) for given, made in pairs if given in reads and made in written]


def _scratch_of(node: KernelNode) -> int:
    """Return what a kernel of PyTorch's own takes for itself while it runs."""
    if not node.is_extern():
        return 0
    origins = [each for each in node.node.get_origins() if each.target == node.node.op_overload]
    if len(origins) != 1:
        return 0
    (origin,) = origins
    given = _given_tensors(origin, node.node.inputs)
    return scratch_bytes(origin, lambda argument: given.get(argument, hinted_value_of(argument)))


def _given_tensors(origin: Node, inputs: Sequence[Any]) -> dict[Node, torch.Tensor]:
    """Return stand-ins, in the layouts that Inductor chose, for the tensors that a kernel of PyTorch's own is given."""
    layouts = [part for part in inputs if part.maybe_get_size() is not None]
    arguments = [part for part in origin.all_input_nodes if isinstance(part.meta.get("val"), torch.Tensor)]
    if len(layouts) != len(arguments):
        return {}
    given: dict[Node, torch.Tensor] = {}
    for argument, layout in zip(arguments, layouts, strict=True):
        shape, strides = (
            V.graph.sizevars.optimization_hints(each) for each in (layout.get_size(), layout.get_stride())
        )
        given[argument] = stand_in(shape, strides, layout.get_dtype(), layout.get_device())
    return given


def _dependencies(
    node: KernelNode, real: dict[str, str], buffers: dict[str, int], makers: dict[str, int]
) -> tuple[list[int], list[int]]:
    """Return the buffers that a kernel keeps alive, and the kernels that it must follow.

    A fake weak dependency orders kernels without keeping anything alive.
    """
    reads: dict[int, None] = {}
    after: dict[int, None] = {}
    for dependency in [*node.read_writes.reads, *node.unmet_dependencies]:
        name = str(dependency.name)
        if not (isinstance(dependency, WeakDep) and dependency.is_fake) and real.get(name, name) in buffers:
            reads[buffers[real.get(name, name)]] = None
        if name in makers:
            after[makers[name]] = None
    return list(reads), list(after)


def _stays_within(buffer: Any, node: KernelNode) -> bool:
    """Tell whether only the kernel itself uses a buffer, which is then never stored.

    On the CPU it is if it comes from a reduction, since another loop reads it.
    """
    own = {part.get_name() for part in node.get_nodes()}
    if len(own) == 1 or not buffer.users or any(user.node.get_name() not in own for user in buffer.users):
        return False
    return not (becomes_cpp(node) and buffer.defining_op.is_reduction())


def becomes_cpp(node: KernelNode) -> bool:
    """Tell whether Inductor writes a kernel in C++, for the CPU."""
    device = node.get_device()
    on_cpu = device is not None and device.type == "cpu" and config.cpu_backend == "cpp"
    return on_cpu and not node.is_extern() and not node.is_template()


def _parts_of(buffer: Any, real: dict[str, str]) -> list[Any]:
    """Return the buffers that are allocated when this one is: the elements of a tuple, or itself.

    Inductor counts those who use a view among the users of what it looks at, so an element is asked what it is of.
    """
    if not isinstance(buffer.node.layout, MultiOutputLayout):
        return [buffer]
    users = [user.node for user in buffer.users if not isinstance(user.node, OutputNode)]
    elements = [
        out
        for user in users
        for out in user.get_outputs()
        if isinstance(out.node, MultiOutput) and out.node.input_name(0) == buffer.get_name()
    ]
    return [part for element in elements if element.get_name() not in real for part in _parts_of(element, real)]


def _add(
    builder: GraphBuilder, buffers: dict[str, int], name: str, sizes: dict[str, tuple[int, int]], outputs: set[str]
) -> int:
    lifetime = Lifetime.OUTPUT if name in outputs else Lifetime.INTERMEDIATE
    buffers[name] = builder.add_buffer(name, max(sizes[name]), lifetime)
    return buffers[name]
