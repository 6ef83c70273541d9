"""Results of packing."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import SpaceId
from lowtide.engine.plan import Status


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """An offset for every buffer, and a lower bound of the arena."""

    offsets: NDArray[np.int64]
    """In bytes; 0 for a buffer that is never alive or empty, unless fixed."""
    arena_bytes: int
    lower_bound_bytes: int
    status: Status
    """optimal: the arena equals the bound. feasible: it fits the capacity, if any. infeasible: no packing fits the
    capacity, proven. stopped_by_work: neither a fitting packing nor a proof was found. interrupted: Ctrl-C ended the
    search. The offsets are a valid packing in every case, possibly above the capacity.
    """
    bound_holders: tuple[int, ...]
    """Buffers that together set the bound."""
    conflict: tuple[int, ...]
    """If infeasible, few buffers that together exceed the capacity; else empty."""
    conflict_minimal: bool = False
    """Whether every buffer of the conflict, or group of tied buffers, is proven necessary."""
    hints_kept: int = 0
    method: str
    """Name of the method that found the packing."""
    work: int
    """Items examined by all methods."""

    @property
    def optimal(self) -> bool:
        """Whether no packing has a smaller arena."""
        return self.arena_bytes == self.lower_bound_bytes

    @property
    def gap(self) -> float:
        """Distance of the arena from the bound, as a fraction."""
        return self.arena_bytes / self.lower_bound_bytes - 1.0 if self.lower_bound_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """A buffer placed outside its first choice of space."""

    buffer: int
    wanted: SpaceId
    space: SpaceId
    too_large: bool
    """Whether the buffer exceeds its first choice; otherwise that space was full."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedSpaces:
    spaces: NDArray[np.int64]
    """Positions in the list of spaces."""
    offsets: NDArray[np.int64]
    packed: Mapping[str, Packed]
    """The packing of every space, by name, with ids within that space."""
    spilled: tuple[Spill, ...]
    status: Status
    """optimal: every buffer is in its first choice. feasible: every space fits. infeasible: proven impossible.
    stopped_by_work: some space is too full, without a proof. interrupted: Ctrl-C ended the search. All packings are
    valid, possibly above capacities.
    """
    spilled_bytes: int
