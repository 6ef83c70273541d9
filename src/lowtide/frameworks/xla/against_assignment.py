"""What XLA reserved for a module beside what the model counts for the same order, and why they differ."""

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
"""The memory space, and its color, that is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A buffer that the model counts at its peak."""

    computation: str
    buffer: BufferId
    size_bytes: int


Range = tuple[int, int, int]
"""An allocation, and from where to where in it."""


def against_assignment(read: ReadModule, allocations: Sequence[Allocation]) -> Reserved:
    """Put the bytes that XLA reserved beside the model's peak in the order of the text, in the first memory space.

    XLA reserves ranges for as long as the program runs: parameters, results, and one for all temporaries; constants and
    what is local to a thread are in neither figure. The model counts what is live at once. The differences add up to
    XLA's bytes less the model's. Complexity: that of evaluating one order, plus O(b log b) for b logical buffers.
    """
    counted = [
        allocation
        for allocation in allocations
        if not (allocation.is_constant or allocation.is_thread_local) and allocation.color == _DEVICE
    ]
    plan = make_candidate("given", read.graph, in_place=True).plan
    held = _held_at_peak(read, read.module.entry.name, plan)
    peak = plan.peak_bytes[read.graph.spaces[_DEVICE].name]
    swapped = peak - sum(one.size_bytes for one in held)
    where = _ranges(counted)
    known = {name: _ranges_of(name, read.computations[name], where) for name in {one.computation: None for one in held}}
    placed = [known[one.computation][one.buffer] for one in held if one.buffer in known[one.computation]]
    unknown = sum(one.size_bytes for one in held if one.buffer not in known[one.computation])
    used = _union(placed)
    overlap = sum(end - start for _, start, end in placed) - sum(_length(ranges) for ranges in used.values())
    idle = {
        allocation.number: allocation.size_bytes - _length(used.get(allocation.number, ())) for allocation in counted
    }
    ever = _union(where.values())
    temporaries = [allocation for allocation in counted if allocation.is_temporary]
    gaps = sum(allocation.size_bytes - _length(ever.get(allocation.number, ())) for allocation in temporaries)
    differences = (
        Difference("results, reserved from the start: not written yet at the peak", _sum(idle, counted, "is_result")),
        Difference("parameters: given away, and not needed any more at the peak", _sum(idle, counted, "is_parameter")),
        Difference("alignment: bytes of the temporary range on which no buffer ever lies", gaps),
        Difference(
            "the temporary range: bytes that hold nothing at the model's peak, as buffers were placed one by one",
            _sum(idle, counted, "is_temporary") - gaps,
        ),
        Difference("buffers that the model counts twice and XLA places once", -overlap),
        Difference("buffers that the model counts and XLA's assignment does not name", -unknown),
        Difference("copies that the model expects where a loop passes its state on in a circle", -swapped),
    )
    return Reserved(
        by="XLA's buffer assignment",
        reserved_bytes=sum(allocation.size_bytes for allocation in counted),
        temporary_bytes=sum(allocation.size_bytes for allocation in allocations if allocation.is_temporary),
        peak_bytes=peak,
        differences=tuple(difference for difference in differences if difference.extra_bytes),
    )


def _held_at_peak(read: ReadModule, name: str, plan: Plan) -> list[_Held]:
    """Return what a computation holds at its own peak, in callees too; what the caller counts is left out."""
    graph = read.computations[name].graph
    callee_peaks = {callee: plan.callees[callee].peak_bytes for callee in graph.called}
    transient = transient_bytes(graph, callee_peaks)[:, _DEVICE].tolist()
    sizes, spaces = graph.sizes.tolist(), graph.buffer_spaces.tolist()
    persistent = graph.persistent.tolist()
    counted = {buffer for buffer in range(graph.n_buffers) if spaces[buffer] == _DEVICE and not persistent[buffer]}
    alive = {buffer for buffer in counted if graph.exists_at_start[buffer]}
    live = best = sum(sizes[buffer] for buffer in alive)
    held, at = set(alive), None
    for step in plan.steps():
        if isinstance(step, Run):
            taken = {read_ for read_, _ in step.pairs}
            new = counted.intersection(graph.structure.allocates[step.op].tolist())
            alive = (alive - taken) | new
            live += sum(sizes[buffer] for buffer in new) - sum(sizes[buffer] for buffer in taken & counted)
            if live + transient[step.op] > best:
                best, held, at = live + transient[step.op], set(alive), step.op
        elif isinstance(step, Free) and step.buffer in alive:
            alive.discard(step.buffer)
            live -= sizes[step.buffer]
    inner = _largest_callee(graph, at, callee_peaks)
    if at is None or inner is None:
        return [_Held(computation=name, buffer=buffer, size_bytes=sizes[buffer]) for buffer in sorted(held)]
    if graph.op_kinds[at] in RESULT_IS_BODY_ROOT and transient[at]:
        held -= {*graph.structure.allocates[at].tolist(), *graph.mutates[at].tolist()}
    inside = _held_at_peak(read, inner, plan.callees[inner]) if transient[at] else []
    return [*(_Held(computation=name, buffer=buffer, size_bytes=sizes[buffer]) for buffer in sorted(held)), *inside]


def _largest_callee(graph: Graph, op: OpId | None, peaks: Mapping[str, Mapping[str, int]]) -> str | None:
    if op is None or not graph.callees[op]:
        return None
    space = graph.spaces[_DEVICE].name
    return max(graph.callees[op], key=lambda name: peaks[name].get(space, 0))


def _ranges(allocations: Iterable[Allocation]) -> dict[Place, Range]:
    """Return where XLA has each logical buffer."""
    found: dict[Place, Range] = {}
    for allocation in allocations:
        for buffer in allocation.buffers:
            if buffer.place is not None:
                place = (allocation.number, buffer.offset, buffer.offset + buffer.size_bytes)
                found.setdefault(buffer.place, place)
    return found


def _ranges_of(name: str, read: ReadComputation, where: Mapping[Place, Range]) -> dict[BufferId, Range]:
    """Return where XLA has the buffers of a computation: the first logical buffer in each that it placed."""
    found: dict[BufferId, Range] = {}
    for number, storage in enumerate(read.storage.of):
        logical = read.points.buffers[number]
        instruction = read.points.computation.instructions[logical.definer]
        place = where.get((name, instruction.name, instruction.shape.indices[logical.part]))
        if storage is not None and place is not None:
            found.setdefault(read.buffers[storage], place)
    return found


def _union(ranges: Iterable[Range]) -> dict[int, list[tuple[int, int]]]:
    """Return the bytes that ranges cover, by allocation, as ranges that do not touch one another."""
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
    """Add up what is idle in allocations of a kind; one that is parameter and result at once is a parameter."""
    return sum(
        idle[allocation.number]
        for allocation in allocations
        if getattr(allocation, kind) and not (kind == "is_result" and allocation.is_parameter)
    )
