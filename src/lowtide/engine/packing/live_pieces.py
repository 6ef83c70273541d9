"""When buffers are alive, gaps taken out."""

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.packing.buffers import Buffers


def live_pieces(buffers: Buffers) -> NDArray[np.int64]:
    """Return rows (buffer, first, last), half-open and not empty, by buffer and step; gaps may overlap or stick out.

    O(n log n) for n buffers and gaps.
    """
    everyone = np.arange(len(buffers))
    if buffers.gaps is None:
        rows = np.stack([everyone, buffers.first, buffers.last], axis=1)
        return rows[buffers.first < buffers.last]
    owners, first, last = buffers.gaps.T
    first, last = np.maximum(first, buffers.first[owners]), np.minimum(last, buffers.last[owners])
    inside = first < last
    # an empty gap at the end of every live range ends the piece before it
    owners = np.concatenate([owners[inside], everyone])
    first = np.concatenate([first[inside], buffers.last])
    last = np.concatenate([last[inside], buffers.last])
    order = np.lexsort((first, owners))
    owners, first, last = owners[order], first[order], last[order]
    steps, ranks = np.unique(last, return_inverse=True)
    latest = np.maximum.accumulate(owners * len(steps) + ranks) - owners * len(steps)
    begins = np.where(np.diff(owners, prepend=-1) > 0, buffers.first[owners], steps[np.roll(latest, 1)])
    alive = begins < first
    return np.stack([owners, begins, first], axis=1)[alive]
