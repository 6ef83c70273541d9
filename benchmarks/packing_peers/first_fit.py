"""Linear scan: by birth, at the lowest address that is free."""

import numpy as np

from packing_peers.events import births_and_deaths
from packing_peers.placed import Ints


def first_fit(first: Ints, last: Ints, sizes: Ints) -> Ints:
    """Place buffers as they are born, each in the lowest hole that fits. O(n * holes).

    Source: first fit with coalescing (Knuth, TAOCP 1, 2.5), as linear-scan planners of compilers use it.
    """
    holes = _Holes()
    offsets = np.zeros(len(sizes), np.int64)
    for buffer, born in births_and_deaths(first, last):
        if born:
            offsets[buffer] = holes.take(int(sizes[buffer]))
        else:
            holes.give(int(offsets[buffer]), int(sizes[buffer]))
    return offsets


class _Holes:
    """Free stretches of an endless address space, lowest first; no two of them touch."""

    def __init__(self) -> None:
        self._count = 1
        self._columns: Ints = np.zeros((2, 1024), np.int64)  # start, room
        self._columns[1, 0] = np.iinfo(np.int64).max // 2

    def take(self, size: int) -> int:
        start, room = self._columns[:, : self._count]
        hole = int((room >= size).argmax())
        offset = int(start[hole])
        start[hole] += size
        room[hole] -= size
        if room[hole] == 0:
            self._drop(hole)
        return offset

    def give(self, offset: int, size: int) -> None:
        start, room = self._columns[:, : self._count]
        after = int(start.searchsorted(offset))  # the endless hole comes after everything
        before = after - 1
        touches_before = before >= 0 and start[before] + room[before] == offset
        touches_after = offset + size == start[after]
        if touches_after:
            start[after] = offset
            room[after] += size
        if touches_before and touches_after:
            room[before] += room[after]
            self._drop(after)
        elif touches_before:
            room[before] += size
        elif not touches_after:
            self._insert(after, offset, size)

    def _drop(self, hole: int) -> None:
        self._columns[:, hole : self._count - 1] = self._columns[:, hole + 1 : self._count]
        self._count -= 1

    def _insert(self, hole: int, offset: int, size: int) -> None:
        if self._count == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._columns[:, hole + 1 : self._count + 1] = self._columns[:, hole : self._count]
        self._columns[:, hole] = (offset, size)
        self._count += 1
