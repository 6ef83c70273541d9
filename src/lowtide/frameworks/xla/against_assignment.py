"""Compare XLA's reserved bytes with the model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import RESULT_IS_BODY_ROOT, transient_bytes
from lowtide.engine.plan import Free, Plan, Run
from lowtide.engine.planning.measured import Difference, Reserved
from lowtide.engine.schedule import make_candidate
from lowtide.frameworks.buffer_assignment import Allocation, Place
from lowtide.frameworks.xla.reading.computation import ReadComputation
from lowtide.frameworks.xla.reading.module import ReadModule

_DEVICE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _AliveBuffer:
    computation: str
    buffer: BufferId
    size_bytes: int


Range = tuple[int, int, int]


def against_assignment(read: ReadModule, allocations: Sequence[Allocation]) -> Reserved:
    """Compare XLA's reserved bytes with the modeled peak in text order, in the first memory space.

    Constants and thread-local buffers are left out. The differences add up to XLA's bytes minus the model's. O(b log b)
    for b logical buffers, and one evaluation of an order.
    """
    counted = [
        allocation
        for allocation in allocations
        if not (allocation.is_constant or allocation.is_thread_local) and allocation.color == _DEVICE
    ]
    plan = make_candidate("given", read.graph, in_place=True).plan
    alive = _alive_at_peak(read, read.module.entry.name, plan)
    peak = plan.peak_bytes[read.graph.spaces[_DEVICE].name]
    swapped = peak - sum(one.size_bytes for one in alive)
    where = _ranges(counted)
    known = {
        name: _ranges_of(name, read.computations[name], where) for name in {one.computation: None for one in alive}
    }
    placed = [known[one.computation][one.buffer] for one in alive if one.buffer in known[one.computation]]
    unknown = sum(one.size_bytes for one in alive if one.buffer not in known[one.computation])
    used = _union(placed)
    overlap = sum(end - start for _, start, end in placed) - sum(_length(ranges) for ranges in used.values())
    idle = {
        allocation.number: allocation.size_bytes - _length(used.get(allocation.number, ())) for allocation in counted
    }
    ever = _union(where.values())
    temporaries = [allocation for allocation in counted if allocation.is_temporary]
    gaps = sum(allocation.size_bytes - _length(ever.get(allocation.number, ())) for allocation in temporaries)
    differences = (
        Difference("results: reserved from the start, not written at the peak", _sum(idle, counted, "is_result")),
        Difference("parameters: donated, and dead at the peak", _sum(idle, counted, "is_parameter")),
        Difference("alignment: bytes of the temporary range that no buffer uses", gaps),
        Difference(
            "fragmentation: bytes of the temporary range that are unused at the modeled peak",
            _sum(idle, counted, "is_temporary") - gaps,
        ),
        Difference("buffers that the model counts twice and XLA places once", -overlap),
        Difference("buffers that the model counts and XLA's assignment lacks", -unknown),
        Difference("copies that the model counts for loops that permute their state", -swapped),
    )
    return Reserved(
        by="XLA's buffer assignment",
        reserved_bytes=sum(allocation.size_bytes for allocation in counted),
        temporary_bytes=sum(allocation.size_bytes for allocation in allocations if allocation.is_temporary),
        peak_bytes=peak,
        differences=tuple(difference for difference in differences if difference.extra_bytes),
    )


def _alive_at_peak(read: ReadModule, name: str, plan: Plan) -> list[_AliveBuffer]:
    graph = read.computations[name].graph
    callee_peaks = {callee: plan.callees[callee].peak_bytes for callee in graph.called}
    transient = transient_bytes(graph, callee_peaks)[:, _DEVICE].tolist()
    sizes, spaces = graph.sizes.tolist(), graph.buffer_spaces.tolist()
    persistent = graph.persistent.tolist()
    counted = {buffer for buffer in range(graph.n_buffers) if spaces[buffer] == _DEVICE and not persistent[buffer]}
    alive = {buffer for buffer in counted if graph.exists_at_start[buffer]}
    live = best = sum(sizes[buffer] for buffer in alive)
    at_peak, op = set(alive), None
    for step in plan.steps():
        if isinstance(step, Run):
            reused = {read_ for read_, _ in step.pairs}
            new = counted.intersection(graph.structure.allocates[step.op].tolist())
            alive = (alive - reused) | new
            live += sum(sizes[buffer] for buffer in new) - sum(sizes[buffer] for buffer in reused & counted)
            if live + transient[step.op] > best:
                best, at_peak, op = live + transient[step.op], set(alive), step.op
        elif isinstance(step, Free) and step.buffer in alive:
            alive.discard(step.buffer)
            live -= sizes[step.buffer]
    inside: list[_AliveBuffer] = []
    inner = _largest_callee(graph, op, callee_peaks)
    if op is not None and inner is not None and transient[op]:
        inside = _alive_at_peak(read, inner, plan.callees[inner])
        if graph.op_kinds[op] in RESULT_IS_BODY_ROOT:
            at_peak -= {*graph.structure.allocates[op].tolist(), *graph.mutates[op].tolist()}
    own = (_AliveBuffer(computation=name, buffer=buffer, size_bytes=sizes[buffer]) for buffer in sorted(at_peak))
    return [*own, *inside]


def _largest_callee(graph: Graph, op: OpId | None, peaks: Mapping[str, Mapping[str, int]]) -> str | None:
    if op is None or not graph.callees[op]:
        return None
    space = graph.spaces[_DEVICE].name
    return max(graph.callees[op], key=lambda name: peaks[name].get(space, 0))


def _ranges(allocations: Iterable[Allocation]) -> dict[Place, Range]:
    found: dict[Place, Range] = {}
    for allocation in allocations:
        for buffer in allocation.buffers:
            if buffer.place is not None:
                place = (allocation.number, buffer.offset, buffer.offset + buffer.size_bytes)
                found.setdefault(buffer.place, place)
    return found


def _ranges_of(name: str, read: ReadComputation, where: Mapping[Place, Range]) -> dict[BufferId, Range]:
    found: dict[BufferId, Range] = {}
    for number, storage in enumerate(read.storage.of):
        logical = read.points.buffers[number]
        instruction = read.points.computation.instructions[logical.definer]
        place = where.get((name, instruction.name, instruction.shape.indices[logical.part]))
        if storage is not None and place is not None:
            found.setdefault(read.buffers[storage], place)
    return found


def _union(ranges: Iterable[Range]) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for allocation, start, end in sorted(ranges):
        known = found.setdefault(allocation, [])
        if known and start <= known[-1][1]:
            known[-1] = (known[-1][0], max(known[-1][1], end))
        else:
            known.append((start, end))
    return found


def _length(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in ranges)


def _sum(idle: Mapping[int, int], allocations: Iterable[Allocation], kind: str) -> int:
    return sum(
        idle[allocation.number]
        for allocation in allocations
        if getattr(allocation, kind) and not (kind == "is_result" and allocation.is_parameter)
    )
