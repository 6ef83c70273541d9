"""Dependences of ops, producers and users of buffers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph.rows import Ids, Rows


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Structure:
    """The structure of a program. Every list is ascending, without repeats."""

    allocates: Rows
    """Buffers it writes first."""
    touches: Rows
    """Buffers resident before it."""
    predecessors: Rows
    successors: Rows
    users: Rows
    """Ops touching a buffer, without its allocator."""
    producers: Ids
    """The allocator of each buffer, or -1."""


@dataclass(frozen=True, slots=True)
class ReadBeforeWriteError(Exception):
    """An op touches a buffer before any write."""

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
    """Return a program's structure. O(n + e); raises ReadBeforeWriteError.

    A reader depends on the last writer, a writer also on all readers since. Ordered ops depend on one another.
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
