"""TensorFlow Grappler's memory optimizer on lowtide graphs: its rules by their names, their results as plans.

For the TensorFlow framework to come.
"""

from lowtide.grappler.hints import Hints
from lowtide.grappler.levels import LEVELS, LevelName, Optimized, optimize_memory

__all__ = ["LEVELS", "Hints", "LevelName", "Optimized", "optimize_memory"]
