"""TensorFlow Grappler's memory optimizer on lowtide graphs: its rules by their names, their results as plans."""

from lowtide.frameworks.tensorflow.grappler.estimate import estimated_pressure, virtual_order
from lowtide.frameworks.tensorflow.grappler.groups import DEFAULT_SCOPE
from lowtide.frameworks.tensorflow.grappler.hints import Hints
from lowtide.frameworks.tensorflow.grappler.levels import LEVELS, LevelName, Optimized, optimize_memory

__all__ = [
    "DEFAULT_SCOPE",
    "LEVELS",
    "Hints",
    "LevelName",
    "Optimized",
    "estimated_pressure",
    "optimize_memory",
    "virtual_order",
]
