"""Constraints that no packing can meet, however large the arena."""

import numpy as np

from lowtide.core.errors import MalformedInputError
from lowtide.engine.packing.buffers import FREE, Buffers
from lowtide.engine.packing.items import Layout
from lowtide.engine.packing.validate import broken_rule


def refuse_contradictions(buffers: Buffers, layout: Layout) -> None:
    """Check that no group holds two buffers that must be apart, and that all that is fixed is a packing by itself.

    Fixed is, too, what a group ties to a fixed offset. Raises MalformedInputError, which names the buffers at fault.
    As fast as `validate`.
    """
    _refuse_apart_in_group(buffers, layout)
    if buffers.fixed is None:
        return
    placed = np.flatnonzero(layout.item_of >= 0)
    ids = placed[layout.items.fixed[layout.item_of[placed]] != FREE]
    offsets = layout.items.fixed[layout.item_of[ids]] + layout.low[ids]
    broken = broken_rule(buffers.take(ids), offsets)
    if broken is not None:
        raise MalformedInputError(f"fixed offsets clash: {broken}; move or free one of them")


def _refuse_apart_in_group(buffers: Buffers, layout: Layout) -> None:
    if buffers.apart is None:
        return
    one, two = buffers.apart.T
    low, high = layout.low, layout.low + buffers.sizes
    tied = (one != two) & (layout.item_of[one] >= 0) & (layout.item_of[one] == layout.item_of[two])
    tied &= (low[one] < high[two]) & (low[two] < high[one])
    for row in np.flatnonzero(tied)[:1].tolist():
        names = f"{buffers.name(int(one[row]))} and {buffers.name(int(two[row]))}"
        raise MalformedInputError(f"buffers {names} share an offset and must be apart; drop one of the two")
