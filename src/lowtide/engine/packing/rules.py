"""Published packing rules, by name."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.engine.packing.bound import live_bytes
from lowtide.engine.packing.buffers import FREE, Ints
from lowtide.engine.packing.items import Items

Rule = Callable[[Items], Ints]


def best_fit_by_size(items: Items) -> Ints:
    """Place the largest items first, ties by longer life, each in the tightest gap, else above its conflicts.

    Source: Pisarchyk and Lee 2020, "greedy by size", as in XLA and TensorFlow Lite. Complexity: O(n^2).
    """
    return _in_order(items, (items.first - items.last, -items.sizes), tightest=True)


def best_fit_by_breadth(items: Items) -> Ints:
    """Place the items of the fullest sections first, the largest first, each in the tightest gap.

    Source: Pisarchyk and Lee 2020, "greedy by breadth". Complexity: O(n^2).
    """
    live = live_bytes(items)
    turn = np.empty(len(live), np.int64)
    turn[np.argsort(-live, kind="stable")] = np.arange(len(live))
    owners, pieces = items.all_pieces()
    earliest = np.full(len(items), len(live), np.int64)
    np.minimum.at(earliest, owners, _least_within(turn, pieces[:, 0], pieces[:, 1]))
    return _in_order(items, (-items.sizes, earliest), tightest=True)


def first_fit_by_size(items: Items) -> Ints:
    """Place the largest items first, each in the lowest gap. Source: Pisarchyk and Lee 2020. O(n^2)."""
    return _in_order(items, (items.first - items.last, -items.sizes), tightest=False)


def first_fit_by_birth(items: Items) -> Ints:
    """Place items by birth, each in the lowest gap. Source: Knuth, TAOCP 1, 2.5. O(n^2)."""
    return _in_order(items, (-items.sizes, items.first), tightest=False)


def best_fit_by_birth(items: Items) -> Ints:
    """Place items by birth, each in the tightest free block, like a best-fit allocator with coalescing.

    Source: Knuth, TAOCP 1, 2.5. Complexity: O(n log n) for rectangles of one alignment, else O(n^2).
    """
    if items.plain and len(np.unique(items.alignment)) <= 1:
        return _native.pack_best_fit_by_birth(items.native())
    return _in_order(items, (-items.sizes, items.first), tightest=True)


RULES: dict[str, Rule] = {
    "best-fit-by-size": best_fit_by_size,
    "best-fit-by-birth": best_fit_by_birth,
    "best-fit-by-breadth": best_fit_by_breadth,
    "first-fit-by-size": first_fit_by_size,
    "first-fit-by-birth": first_fit_by_birth,
}


def stacked(items: Items) -> Ints:
    """Place free items above all fixed and earlier ones. O(n)."""
    free = np.flatnonzero(items.fixed == FREE)
    top = int((items.fixed + items.sizes)[items.fixed != FREE].max(initial=0))
    offsets = items.fixed.copy()
    for item, size, alignment in zip(
        free.tolist(), items.sizes[free].tolist(), items.alignment[free].tolist(), strict=True
    ):
        offsets[item] = -(-top // alignment) * alignment
        top = int(offsets[item]) + size
    return offsets


def _in_order(items: Items, keys: tuple[NDArray[np.generic], ...], *, tightest: bool) -> Ints:
    return _native.pack_in_order(items.native(), np.lexsort(keys).astype(np.int32), tightest)


def _least_within(figures: Ints, first: Ints, last: Ints) -> Ints:
    least = np.empty(len(first), np.int64)
    reach = np.frexp((last - first).astype(np.float64))[1] - 1  # log2 of the largest power of two within the span
    for power in range(int(reach.max(initial=-1)) + 1):
        here = np.flatnonzero(reach == power)
        least[here] = np.minimum(figures[first[here]], figures[last[here] - (1 << power)])
        figures = np.minimum(figures[: -(1 << power)], figures[1 << power :])
    return least
