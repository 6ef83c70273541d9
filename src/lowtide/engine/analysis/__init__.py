"""What can be said about a graph and a plan: footprint, bounds, holders at the peak."""

from lowtide.engine.analysis.footprint import Footprint, simulate
from lowtide.engine.analysis.problem import Evaluation, Problem

__all__ = ["Evaluation", "Footprint", "Problem", "simulate"]
