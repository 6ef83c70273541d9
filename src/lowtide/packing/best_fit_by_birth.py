"""Packing: by birth, each buffer in the tightest free block."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide import _native


@dataclass(frozen=True, slots=True)
class BestFitByBirth:
    """Place buffers as they are born, each in the smallest free block that fits, as a best-fit allocator would.

    Source: best-fit allocation with coalescing (Knuth, TAOCP 1, 2.5). O(n log n).
    Guarantees: feasible, deterministic; no bound.
    """

    def offsets(
        self, first: NDArray[np.int64], last: NDArray[np.int64], sizes: NDArray[np.int64], alignment: int
    ) -> NDArray[np.int64]:
        """Return an offset in bytes per buffer; live ranges are half-open and not empty, sizes positive."""
        return _native.pack_best_fit_by_birth(first, last, sizes, alignment)
