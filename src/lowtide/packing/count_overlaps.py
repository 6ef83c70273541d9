"""How many pairs of rectangles overlap, counted and not searched for."""

import numpy as np
from numpy.typing import NDArray


def count_overlaps(
    first: NDArray[np.int64], last: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64]
) -> int:
    """Return how many pairs overlap of rectangles [first, last) x [low, high), none of which is empty.

    A pair that begins at the same step counts twice. A rectangle's time is cut into O(log n) nodes of a segment tree;
    it meets another at that one's begin in exactly one of them. There, of sorted addresses, those that begin below
    `high` less those that end by `low` are those that overlap. O(n log^2 n), in NumPy; memory O(n).
    """
    n = len(first)
    if n == 0:
        return 0
    steps, ranks = np.unique(np.concatenate([first, last]), return_inverse=True)
    addresses, places = np.unique(np.concatenate([low, high]), return_inverse=True)
    begins, low, high = ranks[:n], places[:n], places[n:]
    width = len(addresses)
    left, right, owners = begins.copy(), ranks[n:], np.arange(n)
    met = 0
    for level in range(len(steps).bit_length()):
        covered = np.concatenate([left[left & 1 == 1], right[right & 1 == 1] - 1])
        who = np.concatenate([owners[left & 1 == 1], owners[right & 1 == 1]])
        if len(covered):
            busy = np.zeros((len(steps) >> level) + 2, np.bool_)
            busy[covered] = True
            here = begins >> level
            born = np.flatnonzero(busy[here])
            starts, ends = np.sort(covered * width + low[who]), np.sort(covered * width + high[who])
            lows, highs = np.sort(here[born] * width + low[born]), np.sort(here[born] * width + high[born])
            met += int(np.searchsorted(starts, highs).sum() - np.searchsorted(ends, lows, "right").sum())
        left, right = (left + 1) >> 1, right >> 1
        wide = left < right
        left, right, owners = left[wide], right[wide], owners[wide]
    return met - n
