"""Analysis of a graph and a plan: memory at every step, lower bounds, tensors alive at the peak.

`live_ranges` is the only walk over the steps of a plan here; the simulator, the holders at the peak and packing use its
residencies.
"""

from lowtide.engine.analysis.footprint import Footprint, simulate
from lowtide.engine.analysis.problem import Evaluation, Problem

__all__ = ["Evaluation", "Footprint", "Problem", "simulate"]
