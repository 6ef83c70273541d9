"""What buffers are there for, as far as a graph shows it: inputs, results, activations, updates, the rest."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import OpId
from lowtide.engine.graph import Graph, Lifetime


class Role(IntEnum):
    """What a buffer is there for; the order is that of pictures, from the bottom up."""

    INPUT = 0
    """There from the start."""
    OUTPUT = 1
    """There to the end."""
    ACTIVATION = 2
    """A temporary of a training step that is made on the way forward and read on the way back."""
    UPDATE = 3
    """A temporary that is read where persistent storage is updated: gradients, and what an optimizer makes of them."""
    TEMPORARY = 4
    """Every other temporary: what lives within one direction, gradients of activations, copies."""

    @property
    def caption(self) -> str:
        """What people read beside it."""
        return ("inputs", "outputs", "activations kept for the way back", "gradients and updates", "temporaries")[self]


def roles_of(graph: Graph) -> NDArray[np.uint8]:
    """Return the `Role` of every buffer. O(n + e).

    An op updates persistent storage where it mutates or writes a buffer of it, or reads one and writes nothing at all.
    Weights are the persistent buffers that are read before anything updates them. Once all of them were read, the way
    forward ends; activations are what was written until then and is read later, in programs that update something.
    """
    roles = np.full(graph.n_buffers, Role.TEMPORARY, np.uint8)
    updates = _updates(graph)
    turn = _end_of_forward(graph, updates)
    readers = graph.reads.owners()
    if turn is not None:
        read_later = np.zeros(graph.n_buffers, np.bool_)
        read_later[graph.reads.values[readers > turn]] = True
        roles[read_later & (graph.structure.producers <= turn)] = Role.ACTIVATION
    roles[graph.reads.values[updates[readers]]] = Role.UPDATE
    roles[graph.exists_at_start] = Role.INPUT
    roles[graph.lifetimes == Lifetime.OUTPUT] = Role.OUTPUT
    return roles


def _updates(graph: Graph) -> NDArray[np.bool_]:
    """Return a mask over ops: those that update persistent storage."""
    persistent = graph.persistent
    updates = np.zeros(graph.n_ops, np.bool_)
    for rows in (graph.mutates, graph.writes):
        updates[rows.owners()[persistent[rows.values]]] = True
    silent = (np.diff(graph.writes.offsets) == 0) & (np.diff(graph.mutates.offsets) == 0)
    readers = graph.reads.owners()
    updates[readers[persistent[graph.reads.values] & silent[readers]]] = True
    return updates


def _end_of_forward(graph: Graph, updates: NDArray[np.bool_]) -> OpId | None:
    """Return the op by which every weight was read, None in programs that update nothing that they read before."""
    first_read = np.full(graph.n_buffers, graph.n_ops)
    first_update = first_read.copy()
    readers = graph.reads.owners()
    reads = ~updates[readers]
    np.minimum.at(first_read, graph.reads.values[reads], readers[reads])
    for rows in (graph.mutates, graph.writes, graph.reads):
        owners = rows.owners()
        np.minimum.at(first_update, rows.values[updates[owners]], owners[updates[owners]])
    weights = graph.persistent & (first_read < first_update) & (first_update < graph.n_ops)
    return int(first_read[weights].max()) if weights.any() else None
