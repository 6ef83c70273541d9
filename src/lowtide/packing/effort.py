"""How much work a packing search may do; counted in items looked at, some 10^9 a second."""

from dataclasses import dataclass

from lowtide.effort import EffortName


@dataclass(frozen=True, slots=True, kw_only=True)
class PackEffort:
    """Limits of one search."""

    priority_work: int
    """For the penalty loop, per part."""
    exact_work: int
    """For exact search, per part, over all heights tried."""
    exact_items: int
    """The largest part that exact search is tried on."""


PACK_EFFORTS: dict[EffortName, PackEffort] = {
    "fast": PackEffort(priority_work=20_000_000, exact_work=50_000_000, exact_items=500),
    "balanced": PackEffort(priority_work=500_000_000, exact_work=5_000_000_000, exact_items=2_000),
    "max": PackEffort(priority_work=20_000_000_000, exact_work=200_000_000_000, exact_items=5_000),
}
"""By name, least first."""
