"""Grappler's swapping."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from lowtide.core.index_spaces import BufferId, OpId, Place, SpaceId
from lowtide.engine.graph import Graph
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Step
from lowtide.engine.recompute.checkpointing import plan_of_runs
from lowtide.frameworks.tensorflow.grappler.nodes import (
    BRANCH_KINDS,
    FORWARDING_KINDS,
    FRAME_KINDS,
    Nodes,
    is_swappable,
)
from lowtide.frameworks.tensorflow.grappler.pressure import Pressure

PCIE_BYTES_PER_SECOND = 16e9
"""Grappler's assumption for PCIe."""

_SMALL_BYTES = 1024
_SHORT_SECONDS = 1e-3
_SHORTEST_OP_SECONDS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A read of a swapped buffer."""

    op: OpId
    read: int
    buffer: BufferId
    in_trigger: OpId
    """The op after which the copy back may start."""
    out_trigger: OpId
    """The first other reader; it waits for the copy out."""


@dataclass(slots=True)
class Skipped:
    """Ops and reads that later rounds skip."""

    ops: set[OpId] = field(default_factory=set[int])
    reads: set[tuple[OpId, int]] = field(default_factory=set[tuple[int, int]])


@dataclass(frozen=True, slots=True)
class _Candidate:
    buffer: BufferId
    fitness: float
    uses: list[tuple[OpId, int]]
    """At or after the peak."""


def choose_swaps(
    graph: Graph, nodes: Nodes, pressure: Pressure, skipped: Skipped, forwarding: Collection[str] = FORWARDING_KINDS
) -> list[tuple[OpId, int]]:
    """Return reads (op, index of the read) to swap until the excess is covered; best first.

    Source: IdentifySwappingCandidates. O(e + k log k) for k candidates.
    """
    if pressure.excess_bytes <= 0:
        return []
    candidates: list[_Candidate] = []
    for live in pressure.live:
        buffer = live.buffer
        too_small = int(graph.sizes[buffer]) <= _SMALL_BYTES or live.freed_at - live.allocated_at <= _SHORT_SECONDS
        if too_small or not skipped.ops.isdisjoint(nodes.writers[buffer]):
            continue
        if not is_swappable(graph, nodes, buffer, forwarding):
            continue
        uses = [use for use in nodes.readers[buffer] if pressure.ends[use[0]] > pressure.peak_at]
        if uses and not any(op in skipped.ops or (op, read) in skipped.reads for op, read in uses):
            to_next_use = min(pressure.ends[op] for op, _ in uses) - pressure.peak_at
            fitness = to_next_use**2 / len(uses) ** 2 + (live.allocated_at - pressure.peak_at) ** 2
            candidates.append(_Candidate(buffer, fitness, uses))
    chosen: list[tuple[OpId, int]] = []
    left = pressure.excess_bytes
    for candidate in sorted(candidates, key=lambda candidate: -candidate.fitness):
        chosen += candidate.uses
        left -= int(graph.sizes[candidate.buffer])
        if left < 0:
            break
    return chosen


def earliest_completion_times(graph: Graph, nodes: Nodes) -> list[float]:
    """Return each op's earliest end, in seconds. O(n + e)."""
    ends: list[float] = []
    for cost, inputs in zip(graph.cost.tolist(), nodes.inputs, strict=True):
        ends.append(max((ends[op] for op in inputs), default=0.0) + max(cost, _SHORTEST_OP_SECONDS))
    return ends


def swap_in_trigger(
    graph: Graph, nodes: Nodes, ends: Sequence[float], op: OpId, swapped: Collection[OpId], seconds: float
) -> OpId | None:
    """Return the op after which values are copied back for `op`, or None. O(n log n + e).

    It is the last ancestor to end before the transfer of `seconds` must start. Source: FindSwapInTrigger.
    """
    inputs = nodes.inputs[op]
    latest = max((ends[source] for source in inputs), default=0.0) - seconds
    waiting = [source for source in inputs if source not in swapped]
    seen = set(waiting)
    found: OpId | None = None
    while waiting:
        source = waiting.pop()
        if graph.op_kinds[source] in FRAME_KINDS or graph.op_kinds[source] in BRANCH_KINDS:
            continue
        if ends[source] < latest:
            if found is None or (ends[source], source) > (ends[found], found):
                found = source
        else:
            waiting += [node for node in nodes.inputs[source] if node not in seen]
            seen.update(nodes.inputs[source])
    return found


def swap_out_trigger(nodes: Nodes, ends: Sequence[float], op: OpId, buffer: BufferId) -> OpId | None:
    """Return a buffer's other reader that ends first, or None. Source: FindSwapOutTrigger."""
    others = [reader for reader, _ in nodes.readers[buffer] if reader != op]
    return min(others, key=lambda reader: (ends[reader], reader), default=None)


def make_swaps(
    graph: Graph, nodes: Nodes, chosen: Mapping[OpId, Sequence[int]], skipped: Skipped, bytes_per_second: float
) -> list[Swap]:
    """Return swaps for reads (op -> indices); ops without a trigger are added to `skipped`. O(n + e) per op."""
    ends = earliest_completion_times(graph, nodes)
    swaps: list[Swap] = []
    for op in sorted(chosen):
        if op in skipped.ops:
            continue
        reads: list[BufferId] = graph.reads[op].tolist()
        buffers = [reads[read] for read in chosen[op]]
        generators = {nodes.writers[buffer][-1] for buffer in buffers if nodes.writers[buffer]}
        seconds = sum(int(graph.sizes[buffer]) for buffer in buffers) / bytes_per_second
        in_trigger = swap_in_trigger(graph, nodes, ends, op, generators, seconds)
        if in_trigger is None:
            skipped.ops.add(op)
            continue
        for read, buffer in zip(chosen[op], buffers, strict=True):
            if (op, read) in skipped.reads:
                continue
            skipped.reads.add((op, read))
            out_trigger = swap_out_trigger(nodes, ends, op, buffer)
            if out_trigger is not None and is_swappable(graph, nodes, buffer):
                swap = Swap(op=op, read=read, buffer=buffer, in_trigger=in_trigger, out_trigger=out_trigger)
                swaps.append(swap)
    return swaps


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stay:
    """Places in the sequence of runs."""

    buffer: BufferId
    written_at: Place
    freed_after: Place
    back_before: Place
    used_at: Place


def plan_with_swaps(
    graph: Graph, runs: Sequence[OpId], swaps: Sequence[Swap], host: SpaceId, bytes_per_second: float
) -> Plan:
    """Build a plan in which swapped buffers are on the host between two uses. O(runs + e).

    A buffer is copied back after the in-trigger, as late as the transfer allows. Empty stays, and buffers written
    repeatedly, are omitted.
    """
    stays = _stays(graph, runs, swaps, bytes_per_second)
    before: dict[Place, list[Step]] = {}
    after: dict[Place, list[Step]] = {}
    copied_out: set[BufferId] = set()
    last_use = {stay.buffer: stay.used_at for stay in sorted(stays, key=lambda stay: stay.used_at)}
    for stay in stays:
        if stay.buffer not in copied_out:
            copied_out.add(stay.buffer)
            around, place = (after, stay.written_at) if stay.written_at >= 0 else (before, 0)
            around.setdefault(place, []).append(CopyOut(stay.buffer, host))
    for stay in stays:
        after.setdefault(stay.freed_after, []).append(Free(stay.buffer))
        before.setdefault(stay.back_before, []).append(CopyIn(stay.buffer, host))
    for buffer, place in last_use.items():
        after.setdefault(place, []).append(Free(buffer, host))
    return plan_of_runs(graph, runs, before=before, after=after)


def _places(graph: Graph, runs: Sequence[OpId]) -> tuple[dict[OpId, list[Place]], dict[BufferId, list[Place]]]:
    touches = list(graph.structure.touches)
    of_op: dict[OpId, list[Place]] = {}
    of_buffer: dict[BufferId, list[Place]] = {}
    for place, op in enumerate(runs):
        of_op.setdefault(op, []).append(place)
        for buffer in touches[op]:
            of_buffer.setdefault(buffer, []).append(place)
    return of_op, of_buffer


def _stays(graph: Graph, runs: Sequence[OpId], swaps: Sequence[Swap], bytes_per_second: float) -> list[_Stay]:
    seconds = [float(graph.cost[op]) for op in runs]
    ends = list(accumulate(seconds))
    starts = [end - each for end, each in zip(ends, seconds, strict=True)]
    places_of_op, places_of_buffer = _places(graph, runs)
    producers: list[OpId] = graph.structure.producers.tolist()
    found: list[_Stay] = []
    stream_free = 0.0
    written = {swap.buffer: places_of_op.get(producers[swap.buffer], [-1]) for swap in swaps}
    placeable = [swap for swap in swaps if len(written[swap.buffer]) == 1]
    copied_at: dict[BufferId, float] = {}
    for buffer in sorted({swap.buffer for swap in placeable}, key=lambda buffer: (written[buffer][0], buffer)):
        place = written[buffer][0]
        stream_free = max(stream_free, ends[place] if place >= 0 else 0.0) + int(graph.sizes[buffer]) / bytes_per_second
        copied_at[buffer] = stream_free
    needed_by = float("inf")
    timed: set[tuple[BufferId, Place]] = set()
    for swap in sorted(placeable, key=lambda swap: (-places_of_op[swap.op][0], swap.read)):
        used_at = places_of_op[swap.op][0]
        if (swap.buffer, used_at) in timed:  # an op that reads one buffer twice
            continue
        timed.add((swap.buffer, used_at))
        start_by = min(needed_by, starts[used_at]) - int(graph.sizes[swap.buffer]) / bytes_per_second
        earlier = [place for place in places_of_buffer[swap.buffer] if place < used_at]
        freed_after = max(earlier, default=written[swap.buffer][0])
        while freed_after < used_at and (freed_after < 0 or ends[freed_after] < copied_at[swap.buffer]):
            freed_after += 1
        back_before = used_at
        triggered = [place for place in places_of_op[swap.in_trigger] if place < used_at]
        earliest = max(freed_after, max(triggered, default=-1)) + 1
        while back_before > earliest and starts[back_before] > start_by:
            back_before -= 1
        if freed_after + 1 < back_before:
            needed_by = start_by
            found.append(
                _Stay(
                    buffer=swap.buffer,
                    written_at=written[swap.buffer][0],
                    freed_after=freed_after,
                    back_before=back_before,
                    used_at=used_at,
                )
            )
    return sorted(found, key=lambda stay: (stay.used_at, stay.buffer))
