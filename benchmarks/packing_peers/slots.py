"""Slots: whole buffers handed on, as planners do that share by name and not by address."""

from bisect import bisect_left, insort

import numpy as np

from packing_peers.events import births_and_deaths
from packing_peers.placed import Ints


def slots(first: Ints, last: Ints, sizes: Ints) -> Ints:
    """Give each buffer, as it is born, the smallest free slot that holds it, or let the largest one grow.

    Source: the greedy recycling of memonger and of graph executors. A slot has the size of its largest buffer; slots
    lie one after the other.
    """
    free: list[tuple[int, int]] = []  # size and slot, smallest first
    room: list[int] = []
    slot_of = np.zeros(len(sizes), np.int64)
    for buffer, born in births_and_deaths(first, last):
        if not born:
            slot = int(slot_of[buffer])
            insort(free, (room[slot], slot))
            continue
        size = int(sizes[buffer])
        if free:
            _, slot = free.pop(min(bisect_left(free, (size, -1)), len(free) - 1))
            room[slot] = max(room[slot], size)
        else:
            slot = len(room)
            room.append(size)
        slot_of[buffer] = slot
    return np.concatenate([[0], np.cumsum(room)])[slot_of]
