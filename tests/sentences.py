"""The sentence for a missed budget, for tests that look for a reason in it."""

from lowtide.engine.analysis.budget import Shortfall
from lowtide.reporting.shortfall import describe


def why(shortfall: Shortfall | None) -> str:
    """Return the sentence for a shortfall; empty if there is none."""
    return "" if shortfall is None else describe(shortfall)
