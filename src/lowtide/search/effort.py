"""How much work a search may do; always counted, never timed, so that every machine finds the same."""

from dataclasses import dataclass

from lowtide.effort import EffortName


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Limits of one search, in looked-at arcs of flow graphs and ready ops; some 10^9 a second."""

    cut_work: int
    """For the cuts that bound the peak and the moves that follow them."""
    fit_work: int
    """For exact search, over all budgets tried."""
    fit_ops: int
    """The largest graph that exact search is tried on, in ops."""


EFFORTS: dict[EffortName, Effort] = {
    "fast": Effort(cut_work=50_000_000, fit_work=50_000_000, fit_ops=5_000),
    "balanced": Effort(cut_work=500_000_000, fit_work=8_000_000_000, fit_ops=100_000),
    "max": Effort(cut_work=5_000_000_000, fit_work=200_000_000_000, fit_ops=200_000),
}
"""By name, least first."""
