"""What an op needs by itself, beside what else must be held while it runs."""

import numpy as np

from lowtide.core.index_spaces import OpId, SpaceId
from lowtide.core.units import ByteUnit
from lowtide.engine.graph import Graph


def own_bytes(graph: Graph, op: OpId, space: SpaceId) -> int:
    """Return the bytes in a memory space of what an op reads, writes and mutates, its scratch included.

    Persistent buffers and callees are left out.
    """
    touched = np.unique(np.concatenate([rows[op] for rows in (graph.reads, graph.writes, graph.mutates)]))
    here = touched[(graph.buffer_spaces[touched] == space) & ~graph.persistent[touched]]
    scratch = int(graph.scratch[op]) if graph.scratch_spaces[op] == space else 0
    return int(graph.sizes[here].sum()) + scratch


def what_needs(graph: Graph, op: OpId, space: SpaceId, held: int) -> str:
    """Say what needs `held` bytes while an op runs, the op alone or all that must be held then; a number follows."""
    own = own_bytes(graph, op, space)
    if own >= held:
        return f"op {graph.described(op)} alone needs"
    part = ByteUnit(held).write(own)
    return f"what must be held while op {graph.described(op)} runs, {part} of it the op's own, is at least"
