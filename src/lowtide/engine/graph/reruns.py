"""The one rule of what may run again: planners, bounds, the verifier and its messages all ask here."""

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import OpId
from lowtide.engine.graph.graph import Graph


def may_run_twice(graph: Graph) -> NDArray[np.bool_]:
    """Return a mask over ops: those that may run a second time.

    Such an op is pure, mutates nothing, writes only what it allocates, and is unordered or a collective. Random draws,
    opaque ops and mutations run once. First runs of ordered ops keep their order. Reruns of a collective stand where
    the plan has them: all ranks follow one plan, so all of them have one order of all collectives. O(n + e).
    """
    return graph.pure & (~graph.ordered | (graph.ranks > 1)) & ~_changes_what_exists(graph)


def why_not_twice(graph: Graph, op: OpId) -> str:
    """Say why an op may not run a second time, in a few words; for ops that `may_run_twice` leaves out."""
    if not graph.pure[op]:
        return "is not pure"
    if graph.ordered[op] and graph.ranks[op] == 1:
        return "keeps its place among the ordered ops"
    return "changes a buffer that is there already"


def _changes_what_exists(graph: Graph) -> NDArray[np.bool_]:
    """Return a mask over ops: those that mutate a buffer, or write one that another op allocates."""
    changes = np.zeros(graph.n_ops, np.bool_)
    changes[graph.mutates.owners()] = True
    foreign = graph.structure.producers[graph.writes.values] != graph.writes.owners()
    changes[graph.writes.owners()[foreign]] = True
    return changes
