"""TVM's unified static memory planner: hill climbing over the order of placement."""

import random

import numpy as np

from packing_peers.placed import Ints, arena, place_in_order
from packing_peers.sections import live_bytes

ATTEMPTS = 500


def hill_climb(first: Ints, last: Ints, sizes: Ints) -> Ints:
    """Swap buffers that lie below the highest one, place all anew in the lowest gaps, keep what helps; 500 attempts.

    Source: USMP's hill climb, with Python's random numbers in place of the C library's. The best packing is kept here,
    there the last accepted one.
    """
    rng = random.Random(0)
    meets = (first[:, None] < last) & (last[:, None] > first)
    np.fill_diagonal(meets, val=False)
    bound = int(live_bytes(first, last, sizes)[1].max())
    order = np.lexsort((-meets.sum(axis=1), -sizes))
    best = accepted = place_in_order(order, first, last, sizes, tightest=False)
    for attempt in range(1, ATTEMPTS):
        if arena(best, sizes) <= bound:
            break
        swap = _swap(rng, order, meets, accepted + sizes)
        if swap is None:
            continue
        tried_order = order.copy()
        tried_order[list(swap)] = order[list(swap[::-1])]
        tried = place_in_order(tried_order, first, last, sizes, tightest=False)
        least, now = arena(accepted, sizes), arena(tried, sizes)
        if now < least or rng.randrange(100) < 50 * (now - least) // now // attempt:
            order, accepted = tried_order, tried
        best = min(best, accepted, key=lambda offsets: arena(offsets, sizes))
    return best


def _swap(rng: random.Random, order: Ints, meets: np.ndarray, ends: Ints) -> tuple[int, int] | None:
    """Pick two positions: of a buffer placed before a highest one that it meets, and of one placed before its like."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    highest = rng.choice(np.flatnonzero(ends == ends.max()).tolist())
    around = np.flatnonzero(meets[highest])
    near = around[position[around] < position[highest]]
    if not len(near):
        return None
    far = np.flatnonzero((meets[around] & (position < position[around][:, None])).ravel()) % len(order)
    one = other = int(rng.choice(near.tolist()))
    while other == one:
        pool = far if len(far) and rng.randrange(100) > 25 else near
        other = int(pool[rng.randrange(len(pool))])
        if len(far) < 2 and len(near) < 2:
            break
    return None if other == one else (int(position[one]), int(position[other]))
