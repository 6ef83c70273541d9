"""Time in sections between which nothing is born and nothing dies."""

import numpy as np

from packing_peers.placed import Ints


def live_bytes(first: Ints, last: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Return the sections' edges, ascending, and the bytes live in each section between two edges."""
    edges = np.unique(np.concatenate([first, last]))
    change = np.zeros(len(edges), np.int64)
    np.add.at(change, edges.searchsorted(first), sizes)
    np.add.at(change, edges.searchsorted(last), -sizes)
    return edges, change.cumsum()[:-1]
