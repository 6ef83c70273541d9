"""Rematerialization: choose which buffers to drop and ops to recompute within a budget, at low and bounded extra cost.

An `OrderedProgram` is a base order with recompute costs. `Drops` select buffers to drop; any drops give a correct plan.
`BudgetSearch` combines fast plans (greedy, one place, segments), sequences of runs, and a solver over a few places. The
greedy search tries a drop by playing only the runs that it changes, so programs of 10,000 ops take seconds. Only bounds
of `certified_bound` and of searches are published; the solver's own bound only steers the search. `compose` varies the
base order too, because the best order depends on the recomputed ops. Graphs of some tens of ops are searched exactly.
Programs of many equal layers are planned with a few of them first (`fewer_layers`), to find the useful base order and
searches for the whole program.

If no plan meets a budget, the search approaches it from below, because targets near the lower bound need the fewest
plans. It plans for slightly more than the lower bound, then twice for halfway between the last target missed and the
peak reached.
"""

from lowtide.engine.recompute.budget_search import BudgetSearch, plan_within_budget
from lowtide.engine.recompute.composition import Composed, ComposeSettings, compose
from lowtide.engine.recompute.curve import curve_of, default_budgets, knee_of, plan_curve
from lowtide.engine.recompute.floor import floor_of, least_bytes, least_possible, least_to_gather
from lowtide.engine.recompute.program import Drops, OrderedProgram
from lowtide.engine.recompute.result import RecomputeResult

__all__ = [
    "BudgetSearch",
    "ComposeSettings",
    "Composed",
    "Drops",
    "OrderedProgram",
    "RecomputeResult",
    "compose",
    "curve_of",
    "default_budgets",
    "floor_of",
    "knee_of",
    "least_bytes",
    "least_possible",
    "least_to_gather",
    "plan_curve",
    "plan_within_budget",
]
