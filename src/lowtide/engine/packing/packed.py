"""The results of packing, into one memory space and into several."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import SpaceId
from lowtide.engine.plan import Status


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """An offset for every buffer, and how far from the smallest arena it can be."""

    offsets: NDArray[np.int64]
    """In bytes, one per buffer; 0 for one that is never alive or has no bytes, unless it is fixed."""
    arena_bytes: int
    """The end of the highest buffer."""
    lower_bound_bytes: int
    """What no packing can beat."""
    status: Status
    """optimal: the arena is the bound. feasible: it fits the capacity, where there is one, and may not be the smallest.
    infeasible: proven that no packing fits the capacity. stopped_by_work: none was found that fits it, nor a proof.
    interrupted: Ctrl-C ended the search. The offsets are a sound packing in every case, within the capacity or not."""
    bound_holders: tuple[int, ...]
    """Buffers that together set the bound."""
    conflict: tuple[int, ...]
    """When infeasible: few buffers that already cannot fit the capacity, whatever becomes of the others; else empty."""
    conflict_minimal: bool = False
    """Whether it is proven that no buffer of the conflict, or group of buffers tied together, can be left out; False,
    too, where there is no conflict. Other conflicts may be smaller all the same."""
    hints_kept: int = 0
    """How many buffers are where their hints ask."""
    method: str
    """What found the packing, by name."""
    work: int
    """Items looked at, over all methods; the limit of every search is counted in them."""

    @property
    def optimal(self) -> bool:
        """Whether no packing has a smaller arena."""
        return self.arena_bytes == self.lower_bound_bytes

    @property
    def gap(self) -> float:
        """How far the arena can be above the smallest, as a fraction of the bound."""
        return self.arena_bytes / self.lower_bound_bytes - 1.0 if self.lower_bound_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """A buffer that is not in the space of its first choice."""

    buffer: int
    wanted: SpaceId
    """The space of its first choice, by position, as is `space`."""
    space: SpaceId
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
