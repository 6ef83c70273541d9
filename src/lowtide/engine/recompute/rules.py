"""Until when in a base order an op may run a second time."""

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import may_run_twice


def rerun_until(graph: Graph, order: Order) -> NDArray[np.int32]:
    """Return, per op, the last moment for which it may run again; moment 2i + 1 is the first run of the op at place i.

    It is 0 for ops that may not run twice, and for ops whose result another op overwrites: it could only be made again
    before that. Others may run again until something that they read gets other contents, such as a weight that an
    optimizer updates. O(n + e).
    """
    return _until(graph, order, np.ones(graph.n_buffers, np.bool_))


def rerun_until_at_most(graph: Graph, order: Order) -> NDArray[np.int32]:
    """Return, per op, the last moment for which any plan may run it again, for bounds.

    What is overwritten counts only if it cannot be made again: inputs, and the results of ops that run once. O(n + e).
    """
    producers = graph.structure.producers
    return _until(graph, order, (producers < 0) | ~may_run_twice(graph)[producers])


def _until(graph: Graph, order: Order, lost: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return the last moments, where a buffer's contents may be `lost` when it is overwritten, or else come back."""
    n = graph.n_ops
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    writes = np.concatenate(
        [np.stack([rows.values, place[rows.owners()]], axis=1) for rows in (graph.writes, graph.mutates)]
    )
    writes = np.unique(writes, axis=0)
    keys = writes[:, 0].astype(np.int64) * (n + 1) + writes[:, 1]
    until = np.full(n, 2 * n + 2, np.int64)
    for rows in (graph.reads, graph.writes):
        owners, buffers = rows.owners(), rows.values.astype(np.int64)
        after = np.searchsorted(keys, buffers * (n + 1) + place[owners], side="right")
        found = after < len(keys)
        found[found] = writes[after[found], 0] == buffers[found]
        found &= lost[buffers]
        moments = 2 * writes[after[found], 1] + 1
        np.minimum.at(until, owners[found], moments if rows is graph.reads else 0)
    makes_something = np.diff(graph.structure.allocates.offsets) > 0
    return np.where(may_run_twice(graph) & makes_something, until, 0).astype(np.int32)
