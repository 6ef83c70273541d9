"""Budgets per memory space, and the shortfall of a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lowtide.core.units import format_bytes
from lowtide.engine.analysis.lower_bounds import BoundHolder
from lowtide.engine.graph import Graph
from lowtide.engine.plan.claim import Claim

UNLIMITED = 2**62


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a plan."""

    allowed: Mapping[str, int | None]
    """The largest allowed peak by space: None without a limit, negative if persistent buffers exceed it."""
    limited_by: Mapping[str, str]
    """"the budget" or "its capacity"."""

    @classmethod
    def of_limits(cls, graph: Graph, limits: Sequence[int | None]) -> "Budget":
        """Return a budget with limits in the order of spaces, ignoring capacities."""
        allowed = dict(zip((space.name for space in graph.spaces), limits, strict=True))
        return cls(allowed, dict.fromkeys(allowed, "the budget"))

    @property
    def limits(self) -> tuple[int, ...]:
        """Limits for native kernels, large if there is none."""
        return tuple(UNLIMITED if most is None else most for most in self.allowed.values())

    def excess_bytes(self, peaks: Mapping[str, int]) -> int:
        """Return the bytes above all limits."""
        return sum(max(0, peaks[space] - most) for space, most in self.allowed.items() if most is not None)

    def rank(self, peaks: Mapping[str, int]) -> tuple[int, int]:
        """Return the sort key of plans; lower is better."""
        return self.excess_bytes(peaks), sum(peaks.values())


Cause = Literal[
    "persistent buffers",
    "inputs and outputs",
    "op",
    "operands of an op",
    "every order",
    "every plan",
    "base order",
    "plan file",
    "not found",
]
"""The reason for a shortfall.

- persistent buffers: they alone exceed the limit
- inputs and outputs: live together before the first op or after the last one
- op: the tensors live while one op runs
- operands of an op: making all of them, even with recomputation
- every order, every plan: a search of all orders, or of all plans with recomputation
- base order: proven only for first runs in the base order
- plan file: it marks the plan as infeasible
- not found: nothing is proven
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A memory space whose limit a plan exceeds, and why."""

    space: str
    limited_by: str = "the budget"
    """As in `Budget.limited_by`."""
    allowed_bytes: int
    """The limit without persistent buffers; negative if these exceed it."""
    reached_bytes: int
    """Peak of the best plan, without persistent buffers."""
    cause: Cause
    is_impossible: bool = False
    """Whether all allowed plans provably exceed the limit."""
    needed_bytes: int | None = None
    """Bytes that every plan of the claimed class needs; None if unproven."""
    claim: Claim | None = None
    """The class of plans needing `needed_bytes`."""
    op: str | None = None
    """With its place in the user's program."""
    op_bytes: int | None = None
    """Bytes that it reads, writes and uses as scratch."""
    holders: tuple[BoundHolder, ...] = ()
    """Tensors live at the lower bound, largest first."""
    base_order: str | None = None
    source: str | None = None
    """The plan file."""

    @property
    def missed_bytes(self) -> int:
        """Bytes above the limit in the best plan found."""
        return self.reached_bytes - self.allowed_bytes

    def __str__(self) -> str:
        proven = ", which is proven impossible to meet" if self.is_impossible else ""
        return f"misses {self.limited_by} by {format_bytes(self.missed_bytes)} in {self.space}{proven}"
