"""Inductor's kernels: scheduler nodes, buffers, sizes, and the graph being compiled."""
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tag
from torch._inductor import config
from torch._inductor.dependencies import WeakDep
from torch._inductor.graph import GraphLowering
from torch._inductor.ir import (
    ExternKernel,
    IRNode,
    Layout,
    MultiOutput,
    MultiOutputLayout,
    NoneLayout,
    NonOwningLayout,
    RandomSeeds,
)
from torch._inductor.memory import compute_size_for_scheduler_buffer, get_freeable_input_buf
from torch._inductor.scheduler import NopKernelSchedulerNode, OutputNode
from torch._inductor.utils import contains_collective, contains_wait
from torch._inductor.virtualized import V
from torch.fx import GraphModule, Node
from torch.utils._ordered_set import OrderedSet

from lowtide.frameworks.torch.internals.operators import higher_order_of
from lowtide.frameworks.torch.internals.tensors import at_planned_sizes

KernelNode = Any

KernelBuffer = Any

Form = tuple[list[int], list[int]]

Strides = list[tuple[int, ...] | None]
"""None for outputs that are no tensors."""


def scheduler() -> Any:
    return V.graph.scheduler


def source_graph() -> GraphModule:
    """Return the FX graph being compiled."""
    module: Any = V.graph.module
    return module


def input_names() -> list[str]:
    return V.graph.graph_input_names


def is_inference() -> bool:
    """Return whether a whole inference program is being compiled, not a branch."""
    return bool(V.graph.is_inference) and type(V.graph) is GraphLowering


def reorders_by_itself() -> bool:
    """Return whether Inductor orders kernels by memory, which may reorder random draws."""
    return bool(config.reorder_for_peak_memory and not config.fallback_random)


def output_names() -> list[str]:
    return [str(name) for name in V.graph.get_output_names() if name]


@dataclass(frozen=True, slots=True)
class KernelStorage:
    """A kernel's allocated storage, with its size in bytes."""

    name: str
    size: int


def output_storages(names: Sequence[str]) -> dict[str, KernelStorage]:
    """Return the storage of each computed output.

    `names` are all output names before Inductor's passes, which may replace nodes.
    """
    original, sizes = names_before_overwriting(), sizes_of_buffers()
    found: dict[str, KernelStorage] = {}
    values: list[Any] = V.graph.graph_outputs
    for output, value in zip(names, values, strict=True):
        if isinstance(value, IRNode) and value.has_tensor_output():
            name: str = original.get(value.get_name(), value.get_name())
            if name in sizes:
                found[output] = KernelStorage(name, max(sizes[name]))
    return found


def output_strides() -> Strides:
    """Return the graph's output strides, at traced sizes."""
    values: list[Any] = V.graph.graph_outputs
    return [
        V.graph.sizevars.optimization_hints(value.get_stride())
        if isinstance(value, IRNode) and value.has_tensor_output()
        else None
        for value in values
    ]


def input_strides() -> dict[str, tuple[int, ...]]:
    return {name: tuple(form_of(value)[1]) for name, value in _tensor_inputs().items()}


def _tensor_inputs() -> dict[str, Any]:
    given: dict[str, Any] = V.graph.graph_inputs
    return {
        name: value for name, value in given.items() if isinstance(value, IRNode) and value.maybe_get_size() is not None
    }


def freeable_inputs(nodes: Sequence[KernelNode]) -> Iterable[str]:
    return get_freeable_input_buf(list(nodes), OrderedSet(V.graph.graph_inputs.keys()))


def names_before_overwriting() -> dict[str, str]:
    return scheduler().mutation_real_name


def sizes_of_buffers() -> dict[str, tuple[int, int]]:
    """Return the bytes allocated for each buffer, and freed with it, with padded rows."""
    buffers = scheduler().name_to_buf
    with at_planned_sizes(V.graph.sizevars.shape_env):
        sizes = compute_size_for_scheduler_buffer(buffers)
    padded = {name: _spanned_bytes(buffers[name].node) for name, (size, freed) in sizes.items() if size and freed}
    return {name: (max(size, padded.get(name, 0)), freed) for name, (size, freed) in sizes.items()}


def bytes_of_inputs() -> dict[str, int]:
    return {name: bytes_of_input(name) for name in _tensor_inputs()}


def bytes_of_input(name: str) -> int:
    """Return an input's full size; Inductor counts only bytes read first."""
    return _spanned_bytes(V.graph.graph_inputs[name])


def _spanned_bytes(value: Any) -> int:
    if value.maybe_get_size() is None:
        return 0
    shape, strides = form_of(value)
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return (last + 1) * value.get_dtype().itemsize if all(shape) else 0


def form_of(value: Any) -> Form:
    """Return planned sizes and strides."""
    sizevars = V.graph.sizevars
    with at_planned_sizes(sizevars.shape_env):
        shape, strides = value.get_size(), value.get_stride()
        return list(sizevars.optimization_hints(shape)), list(sizevars.optimization_hints(strides))


def has_effects(node: KernelNode) -> bool:
    """Return whether a kernel is random, a collective or a wait, or has other side effects."""
    parts = [part.node for part in node.get_nodes()]
    draws = any(
        isinstance(part, RandomSeeds) or Tag.nondeterministic_seeded in getattr(part.op_overload, "tags", ())
        for part in parts
        if isinstance(part, ExternKernel)
    )
    return bool(draws or contains_collective(node) or contains_wait(node) or node.has_side_effects())


def keeps_alive(dependency: Any) -> bool:
    """Return whether a dependency does more than order kernels."""
    return not (isinstance(dependency, WeakDep) and dependency.is_fake)


def becomes_cpp(node: KernelNode) -> bool:
    device = node.get_device()
    on_cpu = device is not None and device.type == "cpu" and config.cpu_backend == "cpp"
    return on_cpu and not node.is_extern() and not node.is_template()


def has_code(node: KernelNode) -> bool:
    return not isinstance(node, NopKernelSchedulerNode)


def pytorch_call(node: KernelNode) -> Node | None:
    """Return the source call of a PyTorch kernel; None for Inductor's."""
    if not node.is_extern():
        return None
    origins = [each for each in node.node.get_origins() if each.target == node.node.op_overload]
    return origins[0] if len(origins) == 1 else None


def called_by(node: KernelNode) -> Node | None:
    """Return a PyTorch kernel's FX node, even if Inductor calls another overload."""
    if not node.is_extern():
        return None
    return pytorch_call(node) or getattr(node.node, "get_origin_node", lambda: None)()


def ordered_call(node: Node) -> Node:
    """Return the call by which Inductor orders random draws, or the node itself."""
    operator = higher_order_of(node.target)
    if operator is None or operator.name() != "control_deps":
        return node
    (body,) = (
        getattr(node.graph.owning_module, str(each.target)) for each in node.all_input_nodes if each.op == "get_attr"
    )
    return next(each for each in reversed(body.graph.nodes) if each.op == "call_function")


def origins_of(node: KernelNode) -> list[Node]:
    parts = [part.node for part in node.get_nodes() if part.node is not None]
    return [origin for part in parts for origin in part.get_origins()]


def source_values() -> dict[str, Node]:
    """Return the FX nodes that buffers were made for."""
    buffers = scheduler().name_to_buf
    origins = {name: getattr(buffer.node, "get_origin_node", lambda: None)() for name, buffer in buffers.items()}
    return {name: origin for name, origin in origins.items() if origin is not None}


def forms_of_values() -> dict[str, Form]:
    """Return the fixed sizes and strides of FX nodes' buffers."""
    found: dict[str, Form] = {}
    for name, node in source_values().items():
        layout = scheduler().name_to_buf[name].node.maybe_get_layout()
        if isinstance(layout, Layout) and not isinstance(layout, MultiOutputLayout | NoneLayout):
            sizes, strides = list(layout.size), list(layout.stride)
            if all(getattr(each, "is_number", isinstance(each, int)) for each in [*sizes, *strides]):
                found[node.name] = list(map(int, sizes)), list(map(int, strides))
    return found


def bytes_moved_by(node: KernelNode) -> int:
    return int(node.get_read_write_buffers_sizes())


def writes_into_others(node: KernelNode) -> bool:
    return any(isinstance(buffer.node.layout, NonOwningLayout) for buffer in node.get_outputs()) or not (
        _overwritten_by(node) <= set(V.graph.graph_inputs)
    )


def overwrites_inputs(node: KernelNode) -> bool:
    return not _overwritten_by(node).isdisjoint(V.graph.graph_inputs)


def _overwritten_by(node: KernelNode) -> set[str]:
    original = names_before_overwriting()
    overwritten = [name for buffer in node.get_outputs() for name in buffer.get_mutations()]
    return {str(original.get(name, name)) for name in overwritten}


def operand_layouts(node: KernelNode) -> list[tuple[Form, torch.dtype, torch.device]]:
    tensors = [part for part in node.node.inputs if part.maybe_get_size() is not None]
    return [(form_of(part), part.get_dtype(), part.get_device()) for part in tensors]


def allocated_with(buffer: KernelBuffer) -> list[KernelBuffer]:
    """Return a tuple's elements, or the buffer itself."""
    if not isinstance(buffer.node.layout, MultiOutputLayout):
        return [buffer]
    original = names_before_overwriting()
    elements = _elements(buffer)
    return [part for element in elements if element.get_name() not in original for part in allocated_with(element)]


def used_results(node: KernelNode) -> set[int]:
    return {element.node.indices[0][1] for buffer in node.get_outputs() for element in _elements(buffer)}


def _elements(buffer: KernelBuffer) -> list[KernelBuffer]:
    users = [user.node for user in buffer.users if not isinstance(user.node, OutputNode)]
    return [
        out
        for user in users
        for out in user.get_outputs()
        if isinstance(out.node, MultiOutput) and out.node.input_name(0) == buffer.get_name()
    ]


def enclosing_buffer(buffer: KernelBuffer) -> str | None:
    """Return the name of the concatenation that contains a buffer."""
    layout = buffer.node.get_output_spec()
    return layout.view.get_name() if isinstance(layout, NonOwningLayout) else None


def unpacked_tuple(node: KernelNode) -> str | None:
    return node.node.inputs[0].get_name() if isinstance(node.node, MultiOutput) else None


def end_cpu_functions_after(kernels: Collection[KernelNode]) -> None:
    owner = scheduler()
    backend = owner.get_backend(torch.device("cpu"))
    backend.ready_to_flush = lambda: owner.current_node in kernels


def choices() -> Any:
    return V.choices


def set_choices(handler: Any) -> None:
    V.set_choices_handler(handler)
