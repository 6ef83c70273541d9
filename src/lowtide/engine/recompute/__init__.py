"""Rematerialization: choose which buffers to drop and ops to recompute within a budget, at low and bounded extra cost.

An `OrderedProgram` is a base order with recompute costs. `Drops` select buffers to drop; any drops give a correct plan.
`BudgetSearch` plans one base order; `compose` varies it too, because the best order depends on the recomputed ops. Only
bounds of `certified_bound` and of searches are published, never the solver's own.
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
