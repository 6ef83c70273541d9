"""The packing that is always at hand."""

import numpy as np

from lowtide.packing.buffers import FREE
from lowtide.packing.items import Ints, Items


def stacked(items: Items) -> Ints:
    """Place every item that is free above everything fixed and every item before it. O(n)."""
    free = np.flatnonzero(items.fixed == FREE)
    top = int((items.fixed + items.sizes)[items.fixed != FREE].max(initial=0))
    offsets = items.fixed.copy()
    for item, size, alignment in zip(
        free.tolist(), items.sizes[free].tolist(), items.alignment[free].tolist(), strict=True
    ):
        offsets[item] = -(-top // alignment) * alignment
        top = int(offsets[item]) + size
    return offsets
