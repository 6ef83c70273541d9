"""Orders for the ops of a graph: one algorithm a file, found by name."""

from lowtide.schedule.callees import plan_graph
from lowtide.schedule.compare_key import compare_key
from lowtide.schedule.scheduler import Scheduler
from lowtide.schedule.table import scheduler, scheduler_names

__all__ = ["Scheduler", "compare_key", "plan_graph", "scheduler", "scheduler_names"]
