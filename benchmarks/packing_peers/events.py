"""Births and deaths in time, for rules that act as an allocator would."""

from collections.abc import Iterator

import numpy as np

from packing_peers.placed import Ints


def births_and_deaths(first: Ints, last: Ints) -> Iterator[tuple[int, bool]]:
    """Yield (buffer, whether it is born), by time; what dies makes room before anything is born at the same time."""
    n = len(first)
    order = np.lexsort((np.tile(np.arange(n), 2), np.arange(2 * n) >= n, np.concatenate([last, first])))
    return zip((order % n).tolist(), (order >= n).tolist(), strict=True)
