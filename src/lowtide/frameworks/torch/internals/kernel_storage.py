"""Storage decisions of Inductor's kernels: unstored values, in-place pairs, loops."""
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Iterator, Sequence
from typing import Any

from torch._inductor.codegen.cpp import OuterLoopFusedSchedulerNode
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.codegen.simd_kernel_features import DisableReduction, EnableReduction, SIMDKernelFeatures
from torch._inductor.codegen.wrapper import can_match_buffer_size
from torch._inductor.dependencies import WeakDep
from torch._inductor.ir import CommBufferLayout, FallbackKernel, MultiOutput, MultiOutputLayout, NoneLayout
from torch._inductor.scheduler import FusedSchedulerNode, SchedulerNode
from torch._inductor.virtualized import V

from lowtide.frameworks.torch.internals.kernels import KernelBuffer, KernelNode, becomes_cpp, has_code


def is_only_read_by(buffer: KernelBuffer, node: KernelNode) -> bool:
    """Return whether only parts of one fused kernel read a buffer."""
    own = {part.get_name() for part in node.get_nodes()}
    return len(own) > 1 and bool(buffer.users) and all(user.node.get_name() in own for user in buffer.users)


def stays_within(buffer: KernelBuffer, node: KernelNode) -> bool:
    """Return whether a buffer is never stored. C++ kernels store reductions, and buffers used by several loops."""
    if not is_only_read_by(buffer, node):
        return False
    if becomes_cpp(node) and buffer.defining_op.is_reduction():
        return False
    return not isinstance(node, OuterLoopFusedSchedulerNode) or _stays_within_loops(buffer, node)


def _stays_within_loops(buffer: KernelBuffer, node: OuterLoopFusedSchedulerNode) -> bool:
    """Return whether one loop alone uses a buffer, or loops store it by rows."""
    loops = [{part.get_name() for part in loop.get_nodes()} for loop in node.get_outer_nodes()]
    own = next(loop for loop in loops if buffer.defining_op.get_name() in loop)
    return all(user.node.get_name() in own for user in buffer.users) or _is_kept_by_rows(buffer, node)


def _is_kept_by_rows(buffer: KernelBuffer, node: KernelNode) -> bool:
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


def drop_ordering_users() -> None:
    """Remove users that only run after a kernel: Inductor would not reuse its result's storage."""
    for name, buffer in V.graph.scheduler.name_to_buf.items():
        buffer.users = [user for user in buffer.users if not (user.is_weak and _only_waits(user.node, name))]


def _only_waits(node: Any, name: str) -> bool:
    known = [each for each in (*node.read_writes.reads, *node.unmet_dependencies) if each.name == name]
    return bool(known) and all(isinstance(each, WeakDep) and each.is_fake for each in known)


def pairs_in_place(node: KernelNode) -> Iterator[tuple[str, str]]:
    """Yield disjoint pairs (read, written) that share storage if this kernel reads last."""
    used: set[str] = set()
    written = (buffer for part in node.get_nodes() for buffer in part.get_outputs())
    # a buffer kept by rows shares no storage
    rows = {buffer.get_name() for buffer in written if _is_kept_by_rows(buffer, node)}
    for part in node.get_nodes():
        if not isinstance(part, SchedulerNode):
            continue
        for buffer in part.get_outputs():
            if buffer.get_name() not in rows and _is_allocated_here(buffer):
                reads = [read.name for read in part.read_writes.reads if read.name not in used | rows]
                for given in map(_buffer, reads):
                    if given is not None and _may_take_over(given, buffer, part, node):
                        used.add(given.get_name())
                        yield given.get_name(), buffer.get_name()
                        break


def _buffer(name: str) -> Any:
    scheduler = V.graph.scheduler
    return scheduler.name_to_donated_buffer.get(name) or scheduler.name_to_buf.get(name)


def _is_allocated_here(buffer: Any) -> bool:
    value = buffer.node
    return bool(value.should_allocate()) and not value.get_inputs_that_alias_output() and not value.get_mutation_names()


def _may_take_over(given: Any, buffer: Any, part: Any, node: Any) -> bool:
    if given.node is None or not has_code(given.defining_op):
        return False
    if isinstance(given.node.get_output_spec(), NoneLayout | MultiOutputLayout | CommBufferLayout):
        return False
    maker = getattr(given.defining_op, "node", None)
    if isinstance(maker, FallbackKernel | MultiOutput) and given.node.get_inputs_that_alias_output():
        return False
    last = [user for user in given.users if user.node is part]
    if any(user.is_weak and user.node is not part for user in given.users):
        return False  # a later op that overwrites an operand of the maker counts as a use
    return (
        len(last) == 1
        and last[0].can_inplace
        and can_match_buffer_size(given.node, buffer.node)
        and _is_last_reader(given, part, node)
    )


def _is_last_reader(given: Any, part: Any, node: Any) -> bool:
    others = {each.get_name() for each in node.get_nodes() if each is not part} - set(part.ancestors)
    accesses = {access for each in node.get_nodes() for access in each.read_writes.reads_and_writes()}
    patterns = [access for access in accesses if access.name == given.get_name()]
    return len(patterns) == 1 and not any(user.node.get_name() in others for user in given.users)


def n_reductions(node: KernelNode) -> int:
    return sum(part.is_reduction() for part in node.get_nodes())


def loops_over_reduction(node: KernelNode) -> bool:
    backend = _simd(node)
    if backend is None or not node.is_reduction():
        return False
    parts: Sequence[Any] = node.get_nodes()
    return _loops(parts, *_shape(parts))


def read_in_later_loops(node: KernelNode) -> set[str]:
    """Return the buffers that a GPU kernel writes in one loop and reads in a later one.

    Users of a reduction need another loop, which loads earlier values from memory.
    """
    backend = _simd(node) if type(node) is FusedSchedulerNode else None
    if backend is None:
        return set()
    parts: Sequence[Any] = node.get_nodes()
    numel, reduced = _shape(parts)
    if reduced == 1:
        return set()
    schedule: list[Any] = backend.generate_node_schedule(parts, numel, reduced)
    if not _loops(schedule, numel, reduced):
        return set()
    earlier: set[str] = set()
    here: set[str] = set()
    found: set[str] = set()
    inside = True
    for part in schedule:
        if part is DisableReduction or part is EnableReduction:
            inside = part is EnableReduction
            earlier |= here
            here.clear()
            continue
        found.update(read.name for read in part.read_writes.reads if read.name in earlier)
        if inside and not part.is_reduction():
            here.update(part.get_buffer_names())
    return found


def _simd(node: Any) -> SIMDScheduling | None:
    device = node.get_device()
    if device is None or node.is_extern():
        return None
    backend = V.graph.scheduler.get_backend(device)
    backend = getattr(backend, "_triton_scheduling", backend)  # on CUDA, one among several
    return backend if isinstance(backend, SIMDScheduling) else None


def _shape(parts: Sequence[Any]) -> tuple[Any, Any]:
    return max(parts, key=lambda part: int(part.is_reduction())).group[1]


def _loops(schedule: Sequence[Any], numel: Any, reduced: Any) -> bool:
    return not V.choices.should_use_persistent_reduction(SIMDKernelFeatures(list(schedule), numel, reduced), False)
