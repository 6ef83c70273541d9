"""Dense packings of known height: a full rectangle cut into buffers, some of which are left out."""

from itertools import pairwise

import numpy as np
from packing_instances import Instance

from lowtide import Buffers

STEPS, HEIGHT, UNIT = 1024, 1024, 1024
"""The rectangle is so many steps wide and so many units of so many bytes high: minimalloc's capacity of 1,048,576."""
LEFT_OUT = (0.05, 0.1, 0.15, 0.2, 0.3)
"""Shares of the pieces that are left out, by seed in turn."""
Rectangle = tuple[int, int, int, int]
"""First and last step, low and high end."""


def cut_packing(seed: int) -> Instance:
    """Cut a full rectangle into pieces, and leave some of them out; 300 to 700 buffers stay.

    One moment stays full, so that what is alive at once at most is the capacity. How many pieces there are, how often a
    cut is in time, how uneven pieces are and how many cuts are no guillotine cuts (five pieces around a middle one)
    all come from the seed.
    """
    rng = np.random.default_rng(seed)
    share = LEFT_OUT[seed % len(LEFT_OUT)]
    n_kept = int(rng.integers(300, 701))
    in_time, wheels, even = rng.uniform(0.3, 0.7), rng.choice([0.0, 0.1, 0.2]), int(rng.integers(1, 5))
    pieces: list[Rectangle] = [(0, STEPS, 0, HEIGHT)]
    while len(pieces) < n_kept / (1 - share):
        drawn: list[int] = rng.integers(0, len(pieces), even).tolist()
        chosen = max(drawn, key=lambda k: _area(pieces[k]))
        pieces[chosen : chosen + 1] = _cut(pieces[chosen], rng, in_time, wheels)
    columns = np.asarray(pieces)
    full = int(rng.integers(STEPS))
    may_go = np.flatnonzero((full < columns[:, 0]) | (columns[:, 1] <= full))
    gone = rng.choice(may_go, min(len(may_go), len(pieces) - n_kept), replace=False)
    first, last, low, high = rng.permutation(np.delete(columns, gone, axis=0)).T
    return Instance(f"cut {seed}, {share:.0%} left out", Buffers(first, last, UNIT * (high - low)))


def _area(piece: Rectangle) -> int:
    first, last, low, high = piece
    return (last - first) * (high - low)


def _cut(piece: Rectangle, rng: np.random.Generator, in_time: float, wheels: float) -> list[Rectangle]:
    """Return the two pieces of a cut, or five of which none is cut off all through; the piece if it is too small."""
    first, last, low, high = piece
    if last - first > 2 and high - low > 2 and rng.random() < wheels:
        early, late = np.sort(first + 1 + rng.choice(last - first - 1, 2, replace=False)).tolist()
        under, over = np.sort(low + 1 + rng.choice(high - low - 1, 2, replace=False)).tolist()
        around = [
            (first, late, low, under),
            (late, last, low, over),
            (early, last, over, high),
            (first, early, under, high),
        ]
        return [*around, (early, late, under, over)]
    if rng.random() < in_time:
        cuts = [int(rng.integers(first + 1, last))] if last - first > 1 else []
        edges = [first, *cuts, last]
        return [(one, two, low, high) for one, two in pairwise(edges)]
    cuts = [int(rng.integers(low + 1, high))] if high - low > 1 else []
    edges = [low, *cuts, high]
    return [(first, last, one, two) for one, two in pairwise(edges)]
