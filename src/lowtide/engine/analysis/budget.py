"""The budget: the bytes each memory space may use, without persistent buffers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.engine.graph import Graph

UNLIMITED = 2**62


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a plan."""

    allowed: Mapping[str, int | None]
    """The largest allowed peak by space, None without a limit, negative if persistent buffers exceed it."""
    limited_by: Mapping[str, str]
    """"the budget" or "its capacity"."""

    @classmethod
    def of_limits(cls, graph: Graph, limits: Sequence[int | None]) -> "Budget":
        """Return a budget with limits in the order of spaces; capacities are ignored."""
        allowed = dict(zip((space.name for space in graph.spaces), limits, strict=True))
        return cls(allowed, dict.fromkeys(allowed, "the budget"))

    @property
    def limits(self) -> tuple[int, ...]:
        """The limits for native kernels, large if there is none."""
        return tuple(UNLIMITED if most is None else most for most in self.allowed.values())

    def excess_bytes(self, peaks: Mapping[str, int]) -> int:
        """Return the bytes above the limits, summed over all spaces."""
        return sum(max(0, peaks[space] - most) for space, most in self.allowed.items() if most is not None)

    def rank(self, peaks: Mapping[str, int]) -> tuple[int, int]:
        """Return the key that ranks plans, lower is better."""
        return self.excess_bytes(peaks), sum(peaks.values())
