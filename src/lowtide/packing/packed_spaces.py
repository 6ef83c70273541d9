"""The result of packing into several memory spaces."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.packing.packed import Packed
from lowtide.plan import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """A buffer that is not in the space of its first choice."""

    buffer: int
    wanted: int
    """The space of its first choice, by position, as is `space`."""
    space: int
    too_large: bool
    """Whether it does not fit its first choice even alone; else that was full."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedSpaces:
    """A space and an offset for every buffer."""

    spaces: NDArray[np.int64]
    """Positions in the list of spaces, one per buffer."""
    offsets: NDArray[np.int64]
    """In bytes, within the buffer's space."""
    packed: Mapping[str, Packed]
    """The packing of every space, by its name; ids in it count the buffers of that space only."""
    spilled: tuple[Spill, ...]
    status: Status
    """optimal: every buffer is in its first choice. feasible: all spaces hold what is in them. infeasible: proven that
    they cannot, however buffers spill. stopped_by_work: some space is too full, and neither is proven. interrupted:
    Ctrl-C came first. The packings of the spaces are sound in every case, within their capacities or not."""
    spilled_bytes: int
