"""Which contents of a buffer every access of a program sees: a version number that grows with each write."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.graph import Graph
from lowtide.index_spaces import BufferId, OpId

ABSENT = -1
"""The version of a buffer that is not resident, or that nothing has written yet."""


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """The accesses of all ops, flat: op i owns positions first[i] up to first[i + 1].

    The accesses from writes_from[i] on write; they leave version seen + 1 behind. A write that sees ABSENT allocates.
    """

    first: Sequence[int]
    writes_from: Sequence[int]
    buffers: Sequence[BufferId]
    seen: Sequence[int]
    final: Sequence[int]
    """Per buffer, the version after the whole program."""

    def allocated_by(self, op: OpId) -> list[BufferId]:
        """Return the buffers that an op allocates."""
        writes = range(self.writes_from[op], self.first[op + 1])
        return [self.buffers[access] for access in writes if self.seen[access] == ABSENT]


@dataclass(frozen=True, slots=True, eq=False)
class VersionArrays:
    """The fields of `Versions` as arrays, for kernels and for graphs of millions of ops."""

    first: NDArray[np.int64]
    writes_from: NDArray[np.int64]
    buffers: NDArray[np.int32]
    seen: NDArray[np.int32]
    final: NDArray[np.int32]


def version_arrays(graph: Graph) -> VersionArrays:
    """Walk the program order and number the contents of every buffer. O(n + e).

    What exists at the start holds version 0; the first write of any other buffer makes its version 0.
    """
    return VersionArrays(
        *_native.number_versions(
            graph.lifetimes,
            graph.reads.offsets,
            graph.reads.values,
            graph.mutates.offsets,
            graph.mutates.values,
            graph.writes.offsets,
            graph.writes.values,
        )
    )


def program_versions(graph: Graph) -> Versions:
    """Return what `version_arrays` returns, as lists, which are faster to look at one by one. O(n + e)."""
    arrays = version_arrays(graph)
    return Versions(
        arrays.first.tolist(),
        arrays.writes_from.tolist(),
        arrays.buffers.tolist(),
        arrays.seen.tolist(),
        arrays.final.tolist(),
    )


def describe_version(graph: Graph, buffer: BufferId, version: int) -> str:
    """Say which write gave a buffer a version, for messages: "as op 'x' wrote it". O(n + e)."""
    versions = version_arrays(graph)
    lengths = np.stack([versions.writes_from - versions.first[:-1], versions.first[1:] - versions.writes_from], axis=1)
    is_write = np.repeat(np.tile([False, True], graph.n_ops), lengths.ravel())
    wrote = is_write & (versions.buffers == buffer) & (versions.seen + 1 == version)
    if not wrote.any():
        return "as it was at the start"
    op = int((versions.first <= wrote.argmax()).sum()) - 1
    return f"as op {graph.op_names[op]!r} wrote it"
