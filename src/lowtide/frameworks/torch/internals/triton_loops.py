"""The loops of one Triton kernel: what an earlier one makes and a later one reads lies in memory in between."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any

from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.codegen.simd_kernel_features import DisableReduction, EnableReduction, SIMDKernelFeatures
from torch._inductor.scheduler import FusedSchedulerNode
from torch._inductor.virtualized import V


def loops_over_reduction(node: Any) -> bool:
    """Tell whether a kernel reduces in a loop, so that what needs the result needs another one."""
    backend = _simd(node)
    if backend is None or not node.is_reduction():
        return False
    parts: Sequence[Any] = node.get_nodes()
    return _loops(parts, *_shape(parts))


def read_in_later_loops(node: Any) -> set[str]:
    """Return what a kernel makes in one loop over a reduced dimension and reads in a later one.

    A reduction is done when its loop ends, so what needs its result needs another loop, to which the values of the
    first are lost. A kernel that holds the whole dimension at once has no loop.
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
    """Return what writes a kernel for a GPU; None for kernels of others."""
    device = node.get_device()
    if device is None or node.is_extern():
        return None
    backend = V.graph.scheduler.get_backend(device)
    backend = getattr(backend, "_triton_scheduling", backend)  # on CUDA, one among several
    return backend if isinstance(backend, SIMDScheduling) else None


def _shape(parts: Sequence[Any]) -> tuple[Any, Any]:
    """Return how many results the kernel of some parts has, and how many elements each is reduced from."""
    return max(parts, key=lambda part: int(part.is_reduction())).group[1]


def _loops(schedule: Sequence[Any], numel: Any, reduced: Any) -> bool:
    """Tell whether a kernel does not hold all that it reduces at once."""
    return not V.choices.should_use_persistent_reduction(SIMDKernelFeatures(list(schedule), numel, reduced), False)
