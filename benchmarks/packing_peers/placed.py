"""What rules that place buffers one by one share: the gaps between what overlaps in time."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Placed:
    """Buffers with an offset, lowest first; a step of a rule asks for the gaps that a live range leaves."""

    def __init__(self, most: int) -> None:
        self._count = 0
        self._columns = np.empty((4, most), np.int64)  # offset, end, first, last

    def put(self, first: int, last: int, offset: int, size: int) -> None:
        """Add a buffer."""
        count, columns = self._count, self._columns
        place = int(columns[0, :count].searchsorted(offset))
        columns[:, place + 1 : count + 1] = columns[:, place:count]
        columns[:, place] = (offset, offset + size, first, last)
        self._count += 1

    def gaps(self, first: int, last: int) -> tuple[Ints, Ints]:
        """Return start and room of every gap between buffers alive in [first, last), lowest first; the last is open.

        The open one has the start that lies above all of them and the largest integer as its room.
        """
        offset, end, firsts, lasts = self._columns[:, : self._count]
        meets = np.flatnonzero((firsts < last) & (lasts > first))
        starts = np.append(0, np.maximum.accumulate(end[meets]))
        return starts, np.append(offset[meets], np.iinfo(np.int64).max) - starts


def place_in_order(order: Ints, first: Ints, last: Ints, sizes: Ints, *, tightest: bool) -> Ints:
    """Place buffers in this order, each in the tightest gap that fits it or else in the lowest. O(n^2)."""
    placed = Placed(len(order))
    offsets = np.zeros(len(order), np.int64)
    for buffer in order.tolist():
        born, dead, size = int(first[buffer]), int(last[buffer]), int(sizes[buffer])
        starts, rooms = placed.gaps(born, dead)
        fits = np.flatnonzero(rooms >= size)
        chosen = fits[rooms[fits].argmin()] if tightest else fits[0]
        offsets[buffer] = starts[chosen]
        placed.put(born, dead, int(starts[chosen]), size)
    return offsets


def arena(offsets: Ints, sizes: Ints) -> int:
    """Return the end of the highest buffer."""
    return int((offsets + sizes).max(initial=0))
