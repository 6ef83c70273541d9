"""TensorFlow Grappler's memory optimizer on lowtide graphs: its levels by name, with plans as results.

The rules choose the same ops and tensors as Grappler; names after "Source:" are functions of its memory_optimizer.cc.
Recomputed runs and copies run at their place in the plan, since Grappler's triggers do not delay them on
convolution networks.
"""

from lowtide.frameworks.tensorflow.grappler.levels import LEVELS, LevelName, LevelPlan, optimize_memory
from lowtide.frameworks.tensorflow.grappler.nodes import Hints
from lowtide.frameworks.tensorflow.grappler.pressure import estimated_pressure, virtual_order
from lowtide.frameworks.tensorflow.grappler.recompute import DEFAULT_SCOPE

__all__ = [
    "DEFAULT_SCOPE",
    "LEVELS",
    "Hints",
    "LevelName",
    "LevelPlan",
    "estimated_pressure",
    "optimize_memory",
    "virtual_order",
]
