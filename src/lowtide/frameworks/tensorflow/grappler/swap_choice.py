"""Grappler's swap heuristic: which reads shall come back from the host, where a device's peak exceeds its memory."""

from collections.abc import Collection
from dataclasses import dataclass, field

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph
from lowtide.frameworks.tensorflow.grappler.kinds import FORWARDING_KINDS
from lowtide.frameworks.tensorflow.grappler.nodes import Nodes, is_swappable
from lowtide.frameworks.tensorflow.grappler.pressure import Pressure

_SMALL_BYTES = 1024
_SHORT_SECONDS = 1e-3


@dataclass(slots=True)
class Skipped:
    """What was tried already and is left alone in later rounds."""

    ops: set[OpId] = field(default_factory=set[int])
    reads: set[tuple[OpId, int]] = field(default_factory=set[tuple[int, int]])


@dataclass(frozen=True, slots=True)
class _Candidate:
    buffer: BufferId
    fitness: float
    uses: list[tuple[OpId, int]]
    """What still reads it at or after the peak: (op, which of its reads)."""


def choose_swaps(
    graph: Graph,
    nodes: Nodes,
    pressure: Pressure,
    skipped: Skipped,
    forwarding: Collection[str] = FORWARDING_KINDS,
) -> list[tuple[OpId, int]]:
    """Return reads (op, which of its reads) to swap until the excess is covered; best first.

    Candidates are the swappable buffers that are live at the peak, hold more than 1 KiB for more than 1 ms, and whose
    later reads were not tried before. Best are those allocated long before the peak and next used long after it, with
    few uses. Source: memory_optimizer.cc of TensorFlow, IdentifySwappingCandidates. O(e + k log k) for k candidates.
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
