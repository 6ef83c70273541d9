"""What follows from the program order: dependencies, producers and users."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph.rows import Ids, Rows


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Structure:
    """What follows from a graph's program order; every list is ascending and without repeats."""

    allocates: Rows
    """Per op, the buffers it writes first."""
    touches: Rows
    """Per op, the buffers it needs resident beforehand: read, mutated or written again."""
    predecessors: Rows
    """Per op, the ops that must run before it: data, anti-dependence, control and effect order."""
    successors: Rows
    """Per op, the ops that must run after it."""
    users: Rows
    """Per buffer, the ops that touch it, its allocator not among them."""
    producers: Ids
    """Per buffer, the op that allocates it, or -1."""


@dataclass(frozen=True, slots=True)
class ReadBeforeWriteError(Exception):
    """An op touches a buffer that nothing has written yet."""

    op: OpId
    buffer: BufferId


def derive_structure(
    lifetimes: NDArray[np.uint8],
    reads: Rows,
    writes: Rows,
    mutates: Rows,
    after: Rows,
    ordered: NDArray[np.bool_],
) -> Structure:
    """Derive the structure of a program in O(n + e).

    A reader waits for the last writer before it; a writer of an existing buffer waits for the last writer and for all
    readers since (anti-dependence); ordered ops wait for one another. Raises ReadBeforeWriteError.
    """
    derived = _native.derive_structure(
        lifetimes,
        reads.offsets,
        reads.values,
        writes.offsets,
        writes.values,
        mutates.offsets,
        mutates.values,
        after.offsets,
        after.values,
        ordered,
    )
    if derived.failed_op >= 0:
        raise ReadBeforeWriteError(derived.failed_op, derived.failed_buffer)
    return Structure(
        allocates=Rows(*derived.allocates),
        touches=Rows(*derived.touches),
        predecessors=Rows(*derived.predecessors),
        successors=Rows(*derived.successors),
        users=Rows(*derived.users),
        producers=derived.producers,
    )
