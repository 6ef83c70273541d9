"""The budget: the bytes each memory space may use, without persistent buffers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.engine.graph import Graph

UNLIMITED = 2**62
"""The limit, in bytes, that native kernels get for a space without a limit."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a plan, as all planners take them."""

    allowed: Mapping[str, int | None]
    """The largest allowed peak by space, in the order of the graph; None means no limit. Negative if persistent buffers
    exceed the limit."""
    limited_by: Mapping[str, str]
    """The origin of each limit: "the budget" or "its capacity"."""

    @classmethod
    def of_limits(cls, graph: Graph, limits: Sequence[int | None]) -> "Budget":
        """Return a budget with these limits in the order of the graph's spaces; capacities are ignored."""
        allowed = dict(zip((space.name for space in graph.spaces), limits, strict=True))
        return cls(allowed, dict.fromkeys(allowed, "the budget"))

    @property
    def limits(self) -> tuple[int, ...]:
        """The limits in the order of the spaces for native kernels, with `UNLIMITED` instead of None."""
        return tuple(UNLIMITED if most is None else most for most in self.allowed.values())

    def excess_bytes(self, peaks: Mapping[str, int]) -> int:
        """Return the bytes by which peaks exceed the limits, summed over all spaces."""
        return sum(max(0, peaks[space] - most) for space, most in self.allowed.items() if most is not None)

    def rank(self, peaks: Mapping[str, int]) -> tuple[int, int]:
        """Return the key that ranks plans, lower is better: bytes above the limits, then all bytes."""
        return self.excess_bytes(peaks), sum(peaks.values())
