"""Orders for the ops of a graph: one algorithm a file, found by name."""

from lowtide.engine.schedule.callees import plan_graph
from lowtide.engine.schedule.candidate import Candidate, make_candidate
from lowtide.engine.schedule.compare import compare_key
from lowtide.engine.schedule.least_arena import with_least_arena
from lowtide.engine.schedule.scheduler import Scheduler
from lowtide.engine.schedule.table import SCHEDULERS, scheduler, scheduler_names
from lowtide.engine.schedule.within_budget import make_candidate_within

__all__ = [
    "SCHEDULERS",
    "Candidate",
    "Scheduler",
    "compare_key",
    "make_candidate",
    "make_candidate_within",
    "plan_graph",
    "scheduler",
    "scheduler_names",
    "with_least_arena",
]
