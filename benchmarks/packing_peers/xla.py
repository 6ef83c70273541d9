"""XLA's heap simulator: global decreasing size, best fit."""

import numpy as np

from packing_peers.placed import Ints, arena, place_in_order


def xla(first: Ints, last: Ints, sizes: Ints) -> Ints:
    """Place by decreasing size and by decreasing life, each in the tightest gap, and keep the smaller arena.

    Source: GlobalDecreasingSizeBestFitHeap, spatial and temporal, as buffer assignment for CPU and GPU combines them.
    """
    life = last - first
    spatial = np.lexsort((-life, -sizes))
    temporal = np.lexsort((-sizes, -life))
    both = [place_in_order(order, first, last, sizes, tightest=True) for order in (spatial, temporal)]
    return min(both, key=lambda offsets: arena(offsets, sizes))
