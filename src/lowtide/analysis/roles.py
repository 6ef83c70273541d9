"""What buffers are there for, as far as a graph shows it: inputs, results, updates of what stays, the rest."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from lowtide.graph import Graph, Lifetime


class Role(IntEnum):
    """What a buffer is there for; the order is that of pictures, from the bottom up."""

    INPUT = 0
    """There from the start."""
    OUTPUT = 1
    """There to the end."""
    UPDATE = 2
    """A temporary that is read where persistent storage is updated: gradients, and what an optimizer makes of them."""
    TEMPORARY = 3
    """Every other temporary: activations, their gradients, copies."""

    @property
    def caption(self) -> str:
        """What people read beside it."""
        return ("inputs", "outputs", "gradients and updates", "activations and other temporaries")[self]


def roles_of(graph: Graph) -> NDArray[np.uint8]:
    """Return the `Role` of every buffer. O(n + e).

    An op updates persistent storage where it mutates or writes a buffer of it, or reads one and writes nothing at all.
    """
    roles = np.full(graph.n_buffers, Role.TEMPORARY, np.uint8)
    persistent = graph.persistent
    updates = np.zeros(graph.n_ops, np.bool_)
    for rows in (graph.mutates, graph.writes):
        updates[rows.owners()[persistent[rows.values]]] = True
    silent = (np.diff(graph.writes.offsets) == 0) & (np.diff(graph.mutates.offsets) == 0)
    readers = graph.reads.owners()
    updates[readers[persistent[graph.reads.values] & silent[readers]]] = True
    roles[graph.reads.values[updates[readers]]] = Role.UPDATE
    roles[graph.exists_at_start] = Role.INPUT
    roles[graph.lifetimes == Lifetime.OUTPUT] = Role.OUTPUT
    return roles
