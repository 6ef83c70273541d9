"""Dependences between ops, producers and users of buffers, derived from the program order."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph.rows import Ids, Rows


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Structure:
    """The structure of a program. Every list is ascending and without repeats."""

    allocates: Rows
    """Per op, the buffers of which it is the first writer."""
    touches: Rows
    """Per op, the buffers that must be resident before it runs: read, mutated or written again."""
    predecessors: Rows
    """Per op, the ops that must run before it: data and anti-dependences, control edges, order of effects."""
    successors: Rows
    """Per op, the ops that must run after it."""
    users: Rows
    """Per buffer, the ops that touch it, except its allocator."""
    producers: Ids
    """Per buffer, the op that allocates it, or -1."""


@dataclass(frozen=True, slots=True)
class ReadBeforeWriteError(Exception):
    """An op touches a buffer that no op has written yet."""

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
    """Return the structure of a program. O(n + e); raises ReadBeforeWriteError.

    A reader depends on the last writer. A writer of an existing buffer depends on the last writer and on all readers
    since (anti-dependence). Ordered ops depend on one another.
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
