"""Which contents of a buffer every access of a program sees: a version number that grows with each write."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph, Lifetime

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


def program_versions(graph: Graph) -> Versions:
    """Walk the program order and number the contents of every buffer. O(n + e).

    What exists at the start holds version 0; the first write of any other buffer makes its version 0.
    """
    current = [0 if lifetime <= Lifetime.DONATED else ABSENT for lifetime in graph.lifetimes.tolist()]
    first, writes_from = [0], list[int]()
    buffers, seen = list[int](), list[int]()
    for reads, mutates, writes in zip(graph.reads, graph.mutates, graph.writes, strict=True):
        written = list(dict.fromkeys(mutates + writes)) if mutates or len(writes) > 1 else writes
        buffers += reads
        writes_from.append(len(buffers))
        buffers += written
        seen += [current[buffer] for buffer in reads]
        seen += [current[buffer] for buffer in written]
        for buffer in written:
            current[buffer] += 1
        first.append(len(buffers))
    return Versions(first, writes_from, buffers, seen, current)


def describe_version(graph: Graph, buffer: BufferId, version: int) -> str:
    """Say which write gave a buffer a version, for messages: "as op 'x' wrote it". O(n + e)."""
    versions = program_versions(graph)
    for op in range(graph.n_ops):
        for access in range(versions.writes_from[op], versions.first[op + 1]):
            if versions.buffers[access] == buffer and versions.seen[access] + 1 == version:
                return f"as op {graph.op_names[op]!r} wrote it"
    return "as it was at the start"
