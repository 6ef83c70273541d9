"""One round of Grappler's swapping: reads to swap, and the ops that trigger both copies."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph
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
    """The first other reader, which waits for the copy out."""


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
    """Reads at or after the peak: (op, index of the read)."""


def choose_swaps(
    graph: Graph, nodes: Nodes, pressure: Pressure, skipped: Skipped, forwarding: Collection[str] = FORWARDING_KINDS
) -> list[tuple[OpId, int]]:
    """Return reads (op, index of the read) to swap until the excess is covered; best first.

    Candidates are alive at the peak, over 1 KiB and 1 ms, with later reads. The best are used long before and long
    after the peak, and rarely. Source: IdentifySwappingCandidates. O(e + k log k) for k candidates.
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
    """Return the earliest end of each op, in seconds. O(n + e)."""
    ends: list[float] = []
    for cost, inputs in zip(graph.cost.tolist(), nodes.inputs, strict=True):
        ends.append(max((ends[op] for op in inputs), default=0.0) + max(cost, _SHORTEST_OP_SECONDS))
    return ends


def swap_in_trigger(
    graph: Graph, nodes: Nodes, ends: Sequence[float], op: OpId, swapped: Collection[OpId], seconds: float
) -> OpId | None:
    """Return the op after which values are copied back for `op`, or None.

    It is the last op to end among ancestors that end before the transfer of `seconds` must start. The search stops at
    the border of a loop or branch. Source: FindSwapInTrigger. O(n log n + e).
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
    """Return the other reader of a buffer that ends first, or None. Source: FindSwapOutTrigger."""
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
