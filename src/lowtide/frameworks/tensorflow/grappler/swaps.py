"""One round of Grappler's swapping: reads that were chosen or hinted become swaps, where triggers exist."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph
from lowtide.frameworks.tensorflow.grappler.completion_times import earliest_completion_times
from lowtide.frameworks.tensorflow.grappler.nodes import Nodes, is_swappable
from lowtide.frameworks.tensorflow.grappler.swap_choice import Skipped
from lowtide.frameworks.tensorflow.grappler.swap_triggers import swap_in_trigger, swap_out_trigger

PCIE_BYTES_PER_SECOND = 16e9
"""What Grappler assumes of PCIe: 16 bytes per nanosecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A read for which a buffer comes back from the host."""

    op: OpId
    read: int
    buffer: BufferId
    in_trigger: OpId
    """The op after which the buffer may come back."""
    out_trigger: OpId
    """The earliest other reader; the buffer has left by then, or leaves while it runs."""


def make_swaps(
    graph: Graph, nodes: Nodes, chosen: Mapping[OpId, Sequence[int]], skipped: Skipped, bytes_per_second: float
) -> list[Swap]:
    """Turn reads (op -> which of its reads) into swaps; what has no trigger is skipped from now on. O(n + e) per op."""
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
