"""The best order, with proof: cuts that bound the peak, moves that follow them, and exact search within a budget."""

from lowtide.search.effort import DEFAULT_EFFORT, EFFORTS, Effort, EffortName
from lowtide.search.fit import Fit, find_fit
from lowtide.search.solve import Solution, solve

__all__ = ["DEFAULT_EFFORT", "EFFORTS", "Effort", "EffortName", "Fit", "Solution", "find_fit", "solve"]
