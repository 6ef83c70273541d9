"""What slots must hold at least."""

from bisect import bisect_right
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lowtide.frameworks.caffe2.sharing.slot_arrays import Intervals


class LevelBound:
    """Bounds the bytes of all slots together from below, also when some of them are open already.

    For every size, as many slots of at least that size are needed as blobs of at least that size are live at once.
    Summed over the steps from one size to the next smaller one, that is never less than the most bytes live at once.
    Complexity: O(n * (n + sizes)) to build, O(log sizes) to ask.
    """

    def __init__(self, intervals: Intervals, by_size: list[int], first: NDArray[np.int64], last: NDArray[np.int64]):
        """Take the blobs from the largest to the smallest, and the first and last section in which each is live."""
        live = np.zeros(len(intervals), np.int64)
        sizes: list[int] = []
        self._needed: list[int] = []  # slots per level; never falls
        self._level_of: list[int] = []  # per place in `by_size`
        for place, blob in enumerate(by_size):
            live[first[blob] : last[blob] + 1] += 1
            size = int(intervals.sizes[blob])
            self._level_of.append(len(sizes))
            if place + 1 == len(by_size) or intervals.sizes[by_size[place + 1]] < size:
                sizes.append(size)
                self._needed.append(int(live.max()))
        self._level_of.append(len(sizes))
        self._sizes = [*sizes, 0]
        self._from_level = [0]
        for (larger, smaller), needed in zip([*pairwise(self._sizes)][::-1], self._needed[::-1], strict=True):
            self._from_level.append(self._from_level[-1] + (larger - smaller) * needed)
        self._from_level.reverse()

    @property
    def total(self) -> int:
        """The bound before anything is placed."""
        return self._from_level[0]

    def still_to_open(self, place: int, n_open: int) -> int:
        """Return the bytes that new slots must have, where the blobs before `place` lie in `n_open` slots."""
        level = max(self._level_of[place], bisect_right(self._needed, n_open))
        return self._from_level[level] - n_open * self._sizes[level]
