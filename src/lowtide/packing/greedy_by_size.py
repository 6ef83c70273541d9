"""Packing: the largest buffers first, each in the tightest gap."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide import _native


@dataclass(frozen=True, slots=True)
class GreedyBySize:
    """Place the largest buffers first, each in the tightest gap that fits, else on top of what it overlaps with.

    Source: Pisarchyk & Lee 2020, "greedy by size". O(n^2). Guarantees: feasible, deterministic; no bound.
    """

    def offsets(
        self, first: NDArray[np.int64], last: NDArray[np.int64], sizes: NDArray[np.int64], alignment: int
    ) -> NDArray[np.int64]:
        """Return an offset in bytes per buffer; live ranges are half-open and not empty, sizes positive."""
        return _native.pack_greedy_by_size(first, last, sizes, alignment)
