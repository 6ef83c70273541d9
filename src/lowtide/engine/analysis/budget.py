"""The budget: how many bytes each memory space may hold beside its persistent buffers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.engine.graph import Graph

UNLIMITED = 2**62
"""A limit that nothing exceeds, in bytes; how kernels are told that there is none."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a plan must stay within; every planner takes a budget in this form."""

    allowed: Mapping[str, int | None]
    """Per space of the graph, in their order: the most its peak may be, persistent buffers not counted. None where
    there is no limit, below zero where persistent buffers alone are too large."""
    limited_by: Mapping[str, str]
    """Per space, what sets the limit: "the budget" or "its capacity"."""

    @classmethod
    def of_limits(cls, graph: Graph, limits: Sequence[int | None]) -> "Budget":
        """Return a budget with these limits in the order of the graph's spaces, capacities left out of account."""
        allowed = dict(zip((space.name for space in graph.spaces), limits, strict=True))
        return cls(allowed, dict.fromkeys(allowed, "the budget"))

    @property
    def limits(self) -> tuple[int, ...]:
        """The limits in the order of the spaces, as kernels take them: `UNLIMITED` where there is none."""
        return tuple(UNLIMITED if most is None else most for most in self.allowed.values())

    def excess_bytes(self, peaks: Mapping[str, int]) -> int:
        """Return by how much peaks exceed the limits, summed over all spaces; 0 where a plan fits."""
        return sum(max(0, peaks[space] - most) for space, most in self.allowed.items() if most is not None)

    def rank(self, peaks: Mapping[str, int]) -> tuple[int, int]:
        """Return what plans are compared by, less is better: bytes over the limits of all spaces, then all bytes."""
        return self.excess_bytes(peaks), sum(peaks.values())
