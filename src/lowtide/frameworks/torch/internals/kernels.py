"""Inductor's kernels: the nodes of its scheduler, the buffers they make, and the graph that is being compiled."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tag
from torch._inductor import config
from torch._inductor.codegen.cpp import OuterLoopFusedSchedulerNode
from torch._inductor.dependencies import WeakDep
from torch._inductor.ir import ExternKernel, IRNode, MultiOutput, MultiOutputLayout, NonOwningLayout, RandomSeeds
from torch._inductor.memory import compute_size_for_scheduler_buffer, get_freeable_input_buf
from torch._inductor.scheduler import NopKernelSchedulerNode, OutputNode
from torch._inductor.utils import contains_collective, contains_wait
from torch._inductor.virtualized import V
from torch.fx import GraphModule, Node
from torch.utils._ordered_set import OrderedSet

from lowtide.frameworks.torch.internals.sizes import at_largest

KernelNode = Any
"""Inductor's `BaseSchedulerNode`: one kernel, before or after fusion."""

KernelBuffer = Any
"""Inductor's `SchedulerBuffer`: what a kernel allocates or writes to."""

Form = tuple[list[int], list[int]]
"""Sizes and strides."""

Strides = list[tuple[int, ...] | None]
"""How the results of a graph lie; None for what is no tensor."""


def scheduler() -> Any:
    """Return the scheduler of the graph that is being compiled."""
    return V.graph.scheduler


def source_graph() -> GraphModule:
    """Return the FX graph that is being compiled."""
    module: Any = V.graph.module
    return module


def input_names() -> list[str]:
    """Return the names of the graph's inputs, in order."""
    return V.graph.graph_input_names


def output_names() -> list[str]:
    """Return the names of the buffers that the graph returns."""
    return [str(name) for name in V.graph.get_output_names() if name]


@dataclass(frozen=True, slots=True)
class KernelStorage:
    """What a kernel allocated."""

    name: str
    size: int
    """In bytes."""


def output_storages() -> dict[str, KernelStorage]:
    """Return, by its name in the source graph, what holds a result that kernels made: views lie in the same storage."""
    (output,) = source_graph().graph.find_nodes(op="output")
    real, sizes = names_before_overwriting(), sizes_of_buffers()
    found: dict[str, KernelStorage] = {}
    values: list[Any] = V.graph.graph_outputs
    for node, value in zip(output.args[0], values, strict=True):
        if isinstance(node, Node) and isinstance(value, IRNode) and value.has_tensor_output():
            name: str = real.get(value.get_name(), value.get_name())
            if name in sizes:
                found[node.name] = KernelStorage(name, max(sizes[name]))
    return found


def output_strides() -> Strides:
    """Return how the results of the graph that is being compiled lie, at the sizes that it was traced with."""
    values: list[Any] = V.graph.graph_outputs
    return [
        V.graph.sizevars.optimization_hints(value.get_stride())
        if isinstance(value, IRNode) and value.has_tensor_output()
        else None
        for value in values
    ]


def input_strides() -> dict[str, tuple[int, ...]]:
    """Return how the inputs lie that are tensors, by name."""
    given: dict[str, Any] = V.graph.graph_inputs
    return {name: tuple(form_of(value)[1]) for name, value in given.items() if isinstance(value, IRNode)}


def freeable_inputs(nodes: Sequence[KernelNode]) -> Iterable[str]:
    """Return the names of the inputs that end at their last use: the caller gives them away."""
    return get_freeable_input_buf(list(nodes), OrderedSet(V.graph.graph_inputs.keys()))


def names_before_overwriting() -> dict[str, str]:
    """Return, per buffer that overwrites another, the name that the storage was made with."""
    return scheduler().mutation_real_name


def sizes_of_buffers() -> dict[str, tuple[int, int]]:
    """Return, per buffer, the bytes that its kernel allocates and those that are freed with it.

    Inductor counts elements; where it pads rows, as for products on a GPU, the padding is allocated as well.
    """
    buffers = scheduler().name_to_buf
    with at_largest(V.graph.sizevars.shape_env):
        sizes = compute_size_for_scheduler_buffer(buffers)
    padded = {name: _spanned_bytes(buffers[name].node) for name, (made, freed) in sizes.items() if made and freed}
    return {name: (max(made, padded.get(name, 0)), freed) for name, (made, freed) in sizes.items()}


def bytes_of_input(name: str) -> int:
    """Return the size of an input as a whole; Inductor counts what the first kernel to read it reads."""
    return _spanned_bytes(V.graph.graph_inputs[name])


def _spanned_bytes(value: Any) -> int:
    """Return the bytes from the first to the last element of a tensor; 0 for what is none."""
    if value.maybe_get_size() is None:
        return 0
    shape, strides = form_of(value)
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return (last + 1) * value.get_dtype().itemsize if all(shape) else 0


def form_of(value: Any) -> Form:
    """Return the sizes and strides that a value is planned at."""
    sizevars = V.graph.sizevars
    with at_largest(sizevars.shape_env):
        return list(sizevars.optimization_hints(value.get_size())), list(
            sizevars.optimization_hints(value.get_stride())
        )


def has_effects(node: KernelNode) -> bool:
    """Tell whether a kernel draws random numbers, is a collective or a wait for one, or has other side effects."""
    parts = [part.node for part in node.get_nodes()]
    draws = any(
        isinstance(part, RandomSeeds) or Tag.nondeterministic_seeded in getattr(part.op_overload, "tags", ())
        for part in parts
        if isinstance(part, ExternKernel)
    )
    return bool(draws or contains_collective(node) or contains_wait(node) or node.has_side_effects())


def keeps_alive(dependency: Any) -> bool:
    """Tell whether a dependency keeps a buffer alive; a fake weak one only orders kernels."""
    return not (isinstance(dependency, WeakDep) and dependency.is_fake)


def becomes_cpp(node: KernelNode) -> bool:
    """Tell whether Inductor writes a kernel in C++, for the CPU."""
    device = node.get_device()
    on_cpu = device is not None and device.type == "cpu" and config.cpu_backend == "cpp"
    return on_cpu and not node.is_extern() and not node.is_template()


def has_code(node: KernelNode) -> bool:
    """Tell whether a kernel does something; that of a tensor whose parts others write does nothing."""
    return not isinstance(node, NopKernelSchedulerNode)


def pytorch_call(node: KernelNode) -> Node | None:
    """Return the call in the source graph that a kernel of PyTorch's own carries out; None for Inductor's kernels."""
    if not node.is_extern():
        return None
    origins = [each for each in node.node.get_origins() if each.target == node.node.op_overload]
    return origins[0] if len(origins) == 1 else None


def operand_layouts(node: KernelNode) -> list[tuple[Form, torch.dtype, torch.device]]:
    """Return, per tensor that a kernel of PyTorch's own is given, the form that Inductor chose, type and device."""
    tensors = [part for part in node.node.inputs if part.maybe_get_size() is not None]
    return [(form_of(part), part.get_dtype(), part.get_device()) for part in tensors]


def is_only_read_by(buffer: KernelBuffer, node: KernelNode) -> bool:
    """Tell whether a kernel of several parts reads what one of them makes, and nothing else does."""
    own = {part.get_name() for part in node.get_nodes()}
    return len(own) > 1 and bool(buffer.users) and all(user.node.get_name() in own for user in buffer.users)


def stays_within(buffer: KernelBuffer, node: KernelNode) -> bool:
    """Tell whether only the kernel itself uses a buffer, which is then never stored.

    On the CPU it is stored all the same where another loop reads it, as of a reduction's result, and of loops that
    share their outer levels only.
    """
    if not is_only_read_by(buffer, node):
        return False
    if becomes_cpp(node) and buffer.defining_op.is_reduction():
        return False
    return not isinstance(node, OuterLoopFusedSchedulerNode) or _stays_within_loops(buffer, node)


def _stays_within_loops(buffer: KernelBuffer, node: OuterLoopFusedSchedulerNode) -> bool:
    """Tell whether a buffer stays within one of the loops that share outer levels, or is kept row by row."""
    loops = [{part.get_name() for part in loop.get_nodes()} for loop in node.get_outer_nodes()]
    own = next(loop for loop in loops if buffer.defining_op.get_name() in loop)
    return all(user.node.get_name() in own for user in buffer.users) or is_kept_by_rows(buffer, node)


def is_kept_by_rows(buffer: KernelBuffer, node: KernelNode) -> bool:
    """Tell whether loops that share outer levels keep what only they use in a row of its own.

    They do so where all have one level more than they share, and what is kept of a row lies in it.
    """
    if not isinstance(node, OuterLoopFusedSchedulerNode) or not is_only_read_by(buffer, node):
        return False
    levels = [
        max(len(part.group[1][0]) + len(part.group[1][1]) for part in loop.get_nodes())
        for loop in node.get_outer_nodes()
    ]
    return (
        all(level == node.outer_loop_fusion_depth + 1 for level in levels)
        and not buffer.defining_op.is_reduction()
        and buffer.node.get_layout().is_contiguous()
    )


def allocated_with(buffer: KernelBuffer) -> list[KernelBuffer]:
    """Return the buffers that are allocated when this one is: the elements of a tuple, or itself.

    Inductor counts the users of a view among those of its base, so an element is asked what it is an element of.
    """
    if not isinstance(buffer.node.layout, MultiOutputLayout):
        return [buffer]
    real = names_before_overwriting()
    elements = _elements(buffer)
    return [part for element in elements if element.get_name() not in real for part in allocated_with(element)]


def places_taken(node: KernelNode) -> set[int]:
    """Return the places of the results that anything takes out of the tuple that a kernel gives."""
    return {element.node.indices[0][1] for buffer in node.get_outputs() for element in _elements(buffer)}


def _elements(buffer: KernelBuffer) -> list[KernelBuffer]:
    """Return what is taken out of a tuple."""
    users = [user.node for user in buffer.users if not isinstance(user.node, OutputNode)]
    return [
        out
        for user in users
        for out in user.get_outputs()
        if isinstance(out.node, MultiOutput) and out.node.input_name(0) == buffer.get_name()
    ]


def whole_of(buffer: KernelBuffer) -> str | None:
    """Return the name of the buffer that a kernel's result is written into as a part; None for one with own storage.

    Parts of a concatenation are written in place: the first of them allocates the whole.
    """
    layout = buffer.node.get_output_spec()
    return layout.view.get_name() if isinstance(layout, NonOwningLayout) else None


def tuple_taken_from(node: KernelNode) -> str | None:
    """Return the name of the tuple that a kernel only takes a result out of; None for any other kernel."""
    return node.node.inputs[0].get_name() if isinstance(node.node, MultiOutput) else None


def end_cpu_functions_after(kernels: Collection[KernelNode]) -> None:
    """Have Inductor's scheduler end the C++ function that it is writing after some kernels."""
    owner = scheduler()
    backend = owner.get_backend(torch.device("cpu"))
    backend.ready_to_flush = lambda: owner.current_node in kernels


def choices() -> Any:
    """Return what makes Inductor's choices, of what to fuse among others."""
    return V.choices


def set_choices(handler: Any) -> None:
    """Let something else make Inductor's choices from now on."""
    V.set_choices_handler(handler)
