"""Rematerialization within a byte budget: what to drop and run again, at the least extra cost, with proof."""

from lowtide.recompute.budget_search import BudgetSearch
from lowtide.recompute.composition import Composed, compose
from lowtide.recompute.curve import Curve, curve_of, default_budgets, knee_of, plan_curve
from lowtide.recompute.floor import Floor, floor_of, least_possible
from lowtide.recompute.gathering import least_bytes, least_to_gather
from lowtide.recompute.program import Drops, Execution, Program
from lowtide.recompute.result import RecomputeResult
from lowtide.recompute.within_budget import plan_within_budget

__all__ = [
    "BudgetSearch",
    "Composed",
    "Curve",
    "Drops",
    "Execution",
    "Floor",
    "Program",
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
