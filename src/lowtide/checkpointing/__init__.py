"""Gradient checkpointing by hand-made rules: plans that run ops again, and Chen's square root of n segments.

For the TensorFlow framework to come, whose optimizer reruns by such rules, and to compare lowtide's own choice with.
"""

from lowtide.checkpointing.runs import plan_of_runs, rerunnable_ops
from lowtide.checkpointing.segments import segment_plan

__all__ = ["plan_of_runs", "rerunnable_ops", "segment_plan"]
