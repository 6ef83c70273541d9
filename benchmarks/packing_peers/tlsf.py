"""Two-level segregated fit, as tinygrad plans its memory."""

from collections import defaultdict

import numpy as np

from packing_peers.events import births_and_deaths
from packing_peers.placed import Ints

CLASSES = 32
"""Second-level classes between two powers of two."""
ENDLESS = 1 << 60


def tlsf(first: Ints, last: Ints, sizes: Ints) -> Ints:
    """Place buffers as they are born, each in the oldest free block of the first class in which every block fits it.

    Source: Masmano et al. 2004; 32 classes as in tinygrad's planner, which also rounds sizes up to pages: not done
    here, in its favor.
    """
    blocks = _Blocks()
    offsets = np.zeros(len(sizes), np.int64)
    for buffer, born in births_and_deaths(first, last):
        if born:
            offsets[buffer] = blocks.take(int(sizes[buffer]))
        else:
            blocks.give(int(offsets[buffer]), int(sizes[buffer]))
    return offsets


def _class_of(size: int) -> int:
    bits = size.bit_length() - 1
    return bits * CLASSES + ((size - (1 << bits)) * CLASSES >> bits)


class _Blocks:
    """Free blocks by class, oldest first, and by their two ends, for merging."""

    def __init__(self) -> None:
        self._classes: defaultdict[int, dict[int, None]] = defaultdict(dict)
        self._occupied = 0  # one bit for each class with a block in it
        self._size_at: dict[int, int] = {}
        self._start_before: dict[int, int] = {}
        self._add(0, ENDLESS)

    def take(self, size: int) -> int:
        step = 1 << max(0, size.bit_length() - CLASSES.bit_length())
        least = _class_of(-(-size // step) * step)
        found = self._occupied >> least
        start = next(iter(self._classes[least + (found & -found).bit_length() - 1]))
        room = self._remove(start)
        if room > size:
            self._add(start + size, room - size)
        return start

    def give(self, start: int, size: int) -> None:
        if start + size in self._size_at:
            size += self._remove(start + size)
        if start in self._start_before:
            before = self._start_before[start]
            size += self._remove(before)
            start = before
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        place = _class_of(size)
        self._classes[place][start] = None
        self._occupied |= 1 << place
        self._size_at[start] = size
        self._start_before[start + size] = start

    def _remove(self, start: int) -> int:
        size = self._size_at.pop(start)
        del self._start_before[start + size]
        place = _class_of(size)
        del self._classes[place][start]
        if not self._classes[place]:
            self._occupied &= ~(1 << place)
        return size
