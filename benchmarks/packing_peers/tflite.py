"""TensorFlow Lite's greedy rules: by size, and by breadth."""

import numpy as np

from packing_peers.placed import Ints, place_in_order
from packing_peers.sections import live_bytes


def by_size(first: Ints, last: Ints, sizes: Ints) -> Ints:
    """Place what lives throughout, then by decreasing size, then by birth, each in the tightest gap.

    Source: the arena planner of TensorFlow Lite; Pisarchyk & Lee 2020.
    """
    brief = (first > first.min()) | (last < last.max())
    order = np.lexsort((first, np.where(brief, -sizes, 0), brief))
    return place_in_order(order, first, last, sizes, tightest=True)


def by_breadth(first: Ints, last: Ints, sizes: Ints) -> Ints:
    """Go through the steps by decreasing live bytes and place what is live there by decreasing size, in tightest gaps.

    Source: Pisarchyk & Lee 2020, "greedy by breadth".
    """
    edges, bytes_of = live_bytes(first, last, sizes)
    visited_at = np.empty(len(bytes_of), np.int64)
    visited_at[np.argsort(-bytes_of, kind="stable")] = np.arange(len(bytes_of))
    earliest = _range_minimum(visited_at, edges.searchsorted(first), edges.searchsorted(last))
    return place_in_order(np.lexsort((-sizes, earliest)), first, last, sizes, tightest=True)


def _range_minimum(values: Ints, start: Ints, stop: Ints) -> Ints:
    """Return the least value in each [start, stop); no range is empty."""
    level = np.frexp((stop - start).astype(np.float64))[1] - 1  # the largest power of two within the range
    result = np.empty(len(start), np.int64)
    table = values
    for power in range(int(level.max()) + 1):
        here = np.flatnonzero(level == power)
        result[here] = np.minimum(table[start[here]], table[stop[here] - (1 << power)])
        table = np.minimum(table[: -(1 << power)], table[1 << power :])
    return result
