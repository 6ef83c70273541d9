"""Memory spaces: where buffers live."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """One memory space: device memory, host memory, an SRAM bank."""

    name: str
    capacity_bytes: int | None = None
    """How much it holds; None means unlimited."""
    alignment: int = 1
    """Every address in this space is a multiple of it, in bytes."""
    bandwidth_bytes_per_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """How fast it copies to other spaces, by their names."""
