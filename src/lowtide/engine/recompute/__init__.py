"""Rematerialization within a byte budget: what to drop and run again, at the least extra cost, with proof."""

from lowtide.engine.recompute.budget_search import BudgetSearch
from lowtide.engine.recompute.composition import Composed, compose
from lowtide.engine.recompute.curve import Curve, curve_of, default_budgets, knee_of, plan_curve
from lowtide.engine.recompute.floor import Floor, floor_of, least_possible
from lowtide.engine.recompute.gathering import least_bytes, least_to_gather
from lowtide.engine.recompute.program import Drops, Execution, Program
from lowtide.engine.recompute.result import RecomputeResult
from lowtide.engine.recompute.within_budget import plan_within_budget

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
