"""Stays of buffers on the host in a sequence of runs, with copies that overlap with compute."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from lowtide.core.index_spaces import BufferId, OpId, Place, SpaceId
from lowtide.engine.graph import Graph
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Step
from lowtide.engine.recompute.checkpointing import plan_of_runs
from lowtide.frameworks.tensorflow.grappler.swaps import Swap


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
    """Build the plan of a sequence of runs in which swapped buffers are on the host between two uses. O(runs + e).

    A buffer is copied out after it is written, and freed after its last use before the swapped read. It is copied back
    after the in-trigger, as late as the transfer allows. Empty stays, and buffers written repeatedly, are omitted.
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
    """Return the places of each op's runs, and of each buffer's uses."""
    touches = list(graph.structure.touches)
    of_op: dict[OpId, list[Place]] = {}
    of_buffer: dict[BufferId, list[Place]] = {}
    for place, op in enumerate(runs):
        of_op.setdefault(op, []).append(place)
        for buffer in touches[op]:
            of_buffer.setdefault(buffer, []).append(place)
    return of_op, of_buffer


def _stays(graph: Graph, runs: Sequence[OpId], swaps: Sequence[Swap], bytes_per_second: float) -> list[_Stay]:
    """Place every stay: copies out in the order of writing, copies back from the last use backward."""
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
