"""Gradient checkpointing by hand-made rules: plans that run ops again, and Chen's square root of n segments.

TensorFlow's memory optimizer reruns by such rules (`grappler`); lowtide's own choice is compared with them.
"""

from lowtide.engine.recompute.checkpointing.runs import plan_of_runs, rerunnable_ops
from lowtide.engine.recompute.checkpointing.segments import segment_plan

__all__ = ["plan_of_runs", "rerunnable_ops", "segment_plan"]
