"""Analysis of a graph and a plan: memory at every step, lower bounds, tensors alive at the peak.

The simulator, the tensors at the peak and packing share `live_ranges`, the only walk over a plan's steps.
"""

from lowtide.engine.analysis.footprint import Footprint, simulate
from lowtide.engine.analysis.problem import Evaluation, Problem

__all__ = ["Evaluation", "Footprint", "Problem", "simulate"]
