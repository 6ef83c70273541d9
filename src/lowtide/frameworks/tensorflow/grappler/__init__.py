"""TensorFlow Grappler's memory optimizer on lowtide graphs: its levels by their names, with plans as results.

Grappler's rules choose the ops to recompute and the tensors to swap, op for op as in TensorFlow
(`tests/frameworks/tensorflow/grappler/test_against_grappler.py`). The time of recomputed runs and copies is different:
it is fixed by their place in the plan, because Grappler's triggers do not delay them on convolution networks.
"""

from lowtide.frameworks.tensorflow.grappler.levels import LEVELS, LevelName, Optimized, optimize_memory
from lowtide.frameworks.tensorflow.grappler.nodes import Hints
from lowtide.frameworks.tensorflow.grappler.pressure import estimated_pressure, virtual_order
from lowtide.frameworks.tensorflow.grappler.recompute import DEFAULT_SCOPE

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
