"""Order the ops of a graph with schedulers, found by name in one table.

Published schedulers are reproduced with all their ties; "Mended" in a docstring names each deliberate difference.
"""

from lowtide.engine.schedule.candidate import (
    Candidate,
    make_candidate,
    make_candidate_within,
    plan_graph,
    with_least_arena,
)
from lowtide.engine.schedule.scheduler import Scheduler, compare_key
from lowtide.engine.schedule.table import SCHEDULERS, scheduler, scheduler_names

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
