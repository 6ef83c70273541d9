"""The curve of memory against time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.errors import UsageError
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.plan import verify
from lowtide.engine.recompute.composition import Composed, ComposeSettings, compose
from lowtide.engine.recompute.floor import floor_of, least_bytes
from lowtide.engine.recompute.program import OrderedProgram, checked_cost
from lowtide.engine.recompute.result import RecomputeResult, explain_shortfall

FEWEST, MOST = 2, 50
_DEFAULT_POINTS = 7


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Results by falling budget. Peaks never rise and extra costs never fall."""

    points: tuple[RecomputeResult, ...]
    knee: int | None
    """Index of the recommended point: farthest below the line between the first and last that fit, with scaled axes.
    None if fewer than three fit."""


def plan_curve(
    problem: Problem,
    orders: Sequence[tuple[str, Order]],
    budgets: Sequence[int] | None = None,
    *,
    cost: NDArray[np.float64] | None = None,
    effort: EffortName = DEFAULT_EFFORT,
    exact: bool = True,
) -> Curve:
    """Plan and verify several budgets, by default seven from the last order's peak down to the floor.

    Plans each by `compose`, with first runs in a base order, and shares plans and bounds between budgets. Raises
    UsageError for fewer than 2 or more than 50 budgets, and as `compose` does.
    """
    program = OrderedProgram(problem, orders[-1][1], checked_cost(problem, cost))
    settings = ComposeSettings(cost=program.cost, reorder=False, effort=effort, exact=exact)
    asked = checked_budgets(default_budgets(program) if budgets is None else budgets)
    return curve_of([compose(problem, orders, budget, settings) for budget in asked], program.cost)


def default_budgets(program: OrderedProgram) -> list[int]:
    """Return seven evenly spaced budgets from a base order's peak to `least_bytes`."""
    most = int(program.problem.evaluate(program.order).peaks[program.space])
    least = least_bytes(program, floor_of(program))
    return [most - (most - least) * k // (_DEFAULT_POINTS - 1) for k in range(_DEFAULT_POINTS)]


def checked_budgets(budgets: Sequence[int]) -> list[int]:
    if not FEWEST <= len(budgets) <= MOST:
        raise UsageError(f"a curve of {len(budgets)} budgets is not possible; give {FEWEST} to {MOST}")
    return sorted(set(budgets), reverse=True)


def curve_of(composed: Sequence[Composed], cost: NDArray[np.float64]) -> Curve:
    """Return the verified curve of plans, largest budget first."""
    points = _share_plans(_share_bounds(composed), cost)
    for plan, problem in {id(point.plan): (point.plan, of.problem) for point, of in points}.values():
        verify(problem.graph, plan, check_capacity=False)
    results = [point for point, _ in points]
    return Curve(tuple(results), knee_of(results))


def _share_bounds(composed: Sequence[Composed]) -> list[Composed]:
    raised: list[Composed] = []
    for found in composed:
        result = found.result
        known = [other.result.extra_cost_bound for other in raised if _bound_covers(other, found)]
        bound = max([result.extra_cost_bound, *known])
        result = replace(result, extra_cost_bound=bound, solver_bound=_word_above(bound, result.solver_bound))
        raised.append(replace(found, result=result))
    return raised


def _bound_covers(larger: Composed, found: Composed) -> bool:
    if larger.result.holds_for_any_order:
        return True
    return not found.result.holds_for_any_order and np.array_equal(larger.order, found.order)


def _share_plans(composed: Sequence[Composed], cost: NDArray[np.float64]) -> list[tuple[RecomputeResult, Composed]]:
    """Return, per budget, the cheapest plan that fits, else the lowest one, with its own search."""
    points: list[tuple[RecomputeResult, Composed]] = []
    for found in composed:
        own = found.result
        budget = own.budget_bytes
        best = min(composed, key=lambda other: (other.result.rank_within(budget), other is not found))
        plan = best.result
        fits = plan.peak_bytes <= budget
        bound = own.extra_cost_bound if best is found or _bound_covers(found, best) else 0.0
        proven = min(bound, plan.extra_cost) if fits else own.extra_cost_bound
        point = replace(
            plan,
            budget_bytes=budget,
            fits=fits,
            extra_cost_bound=proven,
            solver_bound=_word_above(proven, own.solver_bound, plan.extra_cost if fits else float("inf")),
            provable_cost=None,
            peak_bound=own.peak_bound,
            floor=own.floor,
            holds_for_any_order=own.holds_for_any_order,
            places=own.places,
            shortfall=None,
        )
        if not fits:
            program = OrderedProgram(found.problem, found.order, cost)
            reason = explain_shortfall(program, own.floor, budget, plan.peak_bytes, own.extra_cost_bound)
            point = replace(point, shortfall=reason)
        points.append((point, best))
    return points


def _word_above(bound: float, word: float | None, most: float = float("inf")) -> float | None:
    return None if word is None or min(word, most) <= bound else min(word, most)


def knee_of(points: Sequence[RecomputeResult]) -> int | None:
    """Return the recommended point, see `Curve`."""
    fitting = [k for k, point in enumerate(points) if point.fits]
    if len(fitting) < 3:
        return None
    first, last = points[fitting[0]], points[fitting[-1]]
    bytes_saved, cost_added = first.peak_bytes - last.peak_bytes, last.extra_cost - first.extra_cost
    if not bytes_saved or not cost_added:
        return fitting[0] if not bytes_saved else fitting[-1]

    def below(k: int) -> float:
        saved = (first.peak_bytes - points[k].peak_bytes) / bytes_saved
        return saved - (points[k].extra_cost - first.extra_cost) / cost_added

    return max(fitting, key=lambda k: (below(k), -k))
