"""Whether offsets are a packing, by a sweep that shares nothing with any packer."""

from bisect import bisect_left

from packing_peers.events import births_and_deaths
from packing_peers.placed import Ints


def overlap(first: Ints, last: Ints, sizes: Ints, offsets: Ints) -> tuple[int, int] | None:
    """Return two buffers that share bytes while both are alive, or None; empty ones share nothing."""
    there = ((first < last) & (sizes > 0)).nonzero()[0]
    lives: list[tuple[int, int, int]] = []  # offset, end, buffer; sorted, disjoint
    starts, ends, names = offsets[there].tolist(), (offsets + sizes)[there].tolist(), there.tolist()
    for buffer, born in births_and_deaths(first[there], last[there]):
        block = (starts[buffer], ends[buffer], names[buffer])
        place = bisect_left(lives, block)
        if not born:
            del lives[place]
            continue
        for other in lives[max(place - 1, 0) : place + 1]:
            if other[0] < block[1] and block[0] < other[1]:
                return other[2], block[2]
        lives.insert(place, block)
    return None
