"""Search for the lowest extra cost within a budget."""

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import DEFAULT_EFFORT, RECOMPUTE_EFFORTS, EffortName, RecomputeEffort
from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import Place, SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.plan import verify
from lowtide.engine.recompute import solver
from lowtide.engine.recompute.best_plan import BestPlan, repair
from lowtide.engine.recompute.choose_drops import bounds_by_place, trade_at, with_rising_costs
from lowtide.engine.recompute.exact_search import search_exactly
from lowtide.engine.recompute.floor import Floor, floor_of, least_bytes, needs_by_place
from lowtide.engine.recompute.program import Drops, Execution, Ints, OrderedProgram, checked_cost
from lowtide.engine.recompute.prove_cost import ProvableCost
from lowtide.engine.recompute.result import RecomputeResult, explain_shortfall
from lowtide.engine.recompute.run_sequences import improve, lowest_on_demand, on_demand, settle_from
from lowtide.engine.recompute.segments import MAX_EXCESS, checkpoint_drops, repeated_layers, segments_of, settle_layers
from lowtide.engine.recompute.solver_search import SolverSearch

_RESERVES = (0.0, 0.03, 0.07, 0.12, 0.2, 0.3, 0.45)
"""Shares of the budget left free for later recomputed runs."""
_MAX_TRADED = 3
_MAX_RESERVES = 12
_RESERVE_STEPS = 500
_WORTH_SETTLING = 0.2
_LARGE_PROGRAM_OPS = 10_000
"""In larger programs, repeated layers near the bound end the search."""
_LARGE_PROGRAM_GAPS = 3
_MAX_OPS_ON_DEMAND = 4_000
"""In larger programs, recomputation on demand exceeds its work limit."""
_NEAR_FACTOR = 4
_TARGET_MARGIN = 200
_TARGETS = 3
_TARGET_EFFORT = RECOMPUTE_EFFORTS["fast"].part(4)
_NO_GAP = 0.0001


def plan_within_budget(
    problem: Problem,
    order: Order,
    budget_bytes: int,
    *,
    cost: NDArray[np.float64] | None = None,
    space: SpaceId = 0,
    effort: EffortName = DEFAULT_EFFORT,
    exact: bool = True,
) -> RecomputeResult:
    """Return a verified plan within the budget, and a bound on its extra cost.

    `order` is the order of first runs, `cost` the recompute cost per op (default: the graph's). `budget_bytes` excludes
    persistent buffers. With `exact` and HiGHS (extra "exact"), a solver improves both. Deterministic: limits count
    work. Raises UsageError for a negative budget or invalid costs.
    """
    program = OrderedProgram(problem, order, checked_cost(problem, cost), space)
    result = BudgetSearch(program).plan(budget_bytes, RECOMPUTE_EFFORTS[effort], exact=exact)
    verify(problem.graph, result.plan, check_capacity=False)
    return result


class BudgetSearch:
    """Plans one program for any number of budgets.

    `negligible` is the extra cost accepted above its bound, as a share of the base cost.
    """

    def __init__(self, program: OrderedProgram, negligible: float = 0.0) -> None:
        self.program = program
        self._negligible = negligible * float(program.cost.sum())
        self.floor: Floor = floor_of(program)
        self._least_bytes = least_bytes(program, self.floor)
        self.baseline: Execution = program.execute(Drops())
        self._needs = needs_by_place(program)
        self._solving = SolverSearch(program, self.baseline)
        self._rising = with_rising_costs(program)
        self._is_large = len(program.order) > _LARGE_PROGRAM_OPS

    def plan(self, budget: int, effort: RecomputeEffort, *, exact: bool) -> RecomputeResult:
        found = self.begin(budget, effort, exact=exact)
        self.choose_drops(found, effort)
        self.settle(found, effort)
        self.lower(found, effort)
        self.refine(found, effort)
        if exact:
            self.close_gap(found, effort)
        return self.result(found, effort, exact=exact)

    def begin(self, budget: int, effort: RecomputeEffort, max_cost: float = float("inf"), *, exact: bool) -> BestPlan:
        """Return a fast plan and its bound; `choose_drops` follows.

        With `exact`, solve small graphs exactly. Give up plans of repeated layers at `max_cost`.
        """
        if budget < 0:
            raise UsageError(f"the budget is {budget} bytes; persistent buffers may exceed it, so give a larger one")
        found = self._unmodified(budget)
        if self._least_bytes > budget:
            found.bound = float("inf")
            self._lower_peak(found, effort)
        elif not found.fits and not (exact and self._is_solved_exactly(found, effort)):
            found.may_improve = True
            at_peak, by_layers = self._unmodified(budget), self._unmodified(budget)
            self._trade_at_peak(at_peak)
            by_layers.offer(at_peak.drops_execution, at_peak.drops)
            by_layers.share_bounds(at_peak)
            if not at_peak.is_within(_NO_GAP):
                self._plan_layers(by_layers, effort, max_cost)
                found.layers_suffice = self._is_large and by_layers.is_within(_LARGE_PROGRAM_GAPS * effort.relative_gap)
            found.share_bounds(at_peak)
            found.first_plans = (at_peak, by_layers)
        return found

    def choose_drops(self, found: BestPlan, effort: RecomputeEffort, max_cost: float = float("inf")) -> None:
        if found.first_plans is None:
            return
        at_peak, by_layers = found.first_plans
        found.first_plans = None
        if not at_peak.is_within(_NO_GAP) and not found.layers_suffice:
            found.max_drop_cost = max_cost
            repair(self.program, found, Drops(), effort.play_work)
            self._trade(found, effort)
            self._checkpoint(found)
        found.offer(at_peak.drops_execution, at_peak.drops)
        found.is_far_from_bound = not found.layers_suffice and not found.is_within(_WORTH_SETTLING)
        found.offer(by_layers.drops_execution, by_layers.drops)
        for execution in (by_layers.execution, *at_peak.misses, *by_layers.misses):
            found.offer(execution)

    def _unmodified(self, budget: int) -> BestPlan:
        return BestPlan(budget, Drops(), self.baseline, negligible=self._negligible)

    def plan_of_runs(self, runs: Ints, known: BestPlan, effort: RecomputeEffort) -> BestPlan:
        """Return the runs' plan, trimmed, with the bounds of `known`."""
        found = BestPlan(
            known.budget,
            Drops(),
            self.baseline,
            known.bound,
            known.peak_bound,
            bound_places=known.bound_places,
            claimed_bound=known.claimed_bound,
            claimed_places=known.claimed_places,
            may_improve=known.may_improve,
            place_bounds=known.place_bounds,
            negligible=self._negligible,
        )
        found.offer(self.program.replay(runs))
        if found.fits:
            found.offer(self.program.replay(self.program.native.trim_runs(runs, known.budget, effort.run_work // 4)))
        return found

    def settle(self, found: BestPlan, effort: RecomputeEffort) -> None:
        """Offer run sequences if plans of drops are far from the bound."""
        if not (found.may_improve and found.is_far_from_bound):
            return
        settled = settle_from(
            self.program,
            [found.execution.runs],
            found.budget,
            max_cost=found.execution.extra_cost if found.fits else None,
            max_work=effort.run_work // 2,
        )
        for offered in (settled, on_demand(self.program, found.budget, effort.run_work // 4)):
            if offered is not None:
                found.offer(offered)

    def lower(self, found: BestPlan, effort: RecomputeEffort) -> None:
        if found.fits:
            return
        if found.may_be_lower:
            found.may_be_lower = False
            self._plan_higher_targets(found)
        if found.may_improve and found.is_far_from_bound:
            self._lower_on_demand(found, effort.run_work)

    def refine(self, found: BestPlan, effort: RecomputeEffort) -> None:
        """Search the plan's neighborhoods for a cheaper one."""
        if found.may_improve and found.is_far_from_bound:
            self._improve(found, effort.run_work)

    def close_gap(self, found: BestPlan, effort: RecomputeEffort) -> None:
        """Improve bound and plan with the solver, if installed."""
        self.weigh(found, effort)
        if found.may_improve and found.may_fit and not found.is_within(effort.relative_gap) and solver.is_available():
            if not found.layers_suffice:
                self._solving.close_gap(found, effort)
            if not found.is_within(effort.relative_gap):
                self._improve(found, effort.run_work // 4)

    def bound_more(self, found: BestPlan, effort: RecomputeEffort, *, exact: bool) -> None:
        """Raise the bound with the solver, from the strongest places on."""
        self.weigh(found, effort)
        if (
            exact
            and found.place_bounds
            and not found.layers_suffice
            and not found.is_within(effort.relative_gap)
            and solver.is_available()
        ):
            self._solving.bound_more(found, effort)

    def weigh(self, found: BestPlan, effort: RecomputeEffort) -> None:
        """Raise the bound to the highest of single places, once per budget."""
        if (
            not found.may_improve
            or found.place_bounds is not None
            or not found.may_fit
            or found.is_within(effort.relative_gap)
        ):
            return
        found.place_bounds = bounds_by_place(self.program, self._needs, self.baseline.live, found.budget)
        found.raise_bound(self.program, found.place_bounds[0].bound, found.place_bounds[0].place)

    def _lower_peak(self, found: BestPlan, effort: RecomputeEffort) -> None:
        """Offer plans of low peak for a budget below the lower bound."""
        lowest = BestPlan(self._least_bytes, found.drops, found.drops_execution)
        repair(self.program, lowest, Drops(), effort.play_work)
        found.offer(lowest.drops_execution, lowest.drops)
        is_near = self.floor.peak_bytes <= found.budget
        is_lowered = self._lower_on_demand(found, effort.demand_work * (_NEAR_FACTOR if is_near else 1))
        on_demand_failed = not is_lowered and len(self.program.order) > _MAX_OPS_ON_DEMAND
        found.may_be_lower = on_demand_failed or not self._negligible

    def _plan_higher_targets(self, found: BestPlan) -> None:
        missed, target = self._least_bytes, self._least_bytes + self._least_bytes // _TARGET_MARGIN
        for _ in range(_TARGETS):
            if found.execution.peak_bytes <= target:
                return
            tried = self.begin(target, _TARGET_EFFORT, exact=False)
            self.choose_drops(tried, _TARGET_EFFORT)
            self.settle(tried, _TARGET_EFFORT)
            self.lower(tried, _TARGET_EFFORT)
            self.refine(tried, _TARGET_EFFORT)
            found.offer(tried.execution)
            if found.execution.peak_bytes > target:
                missed = target
            target = (missed + found.execution.peak_bytes) // 2

    def _lower_on_demand(self, found: BestPlan, max_work: int) -> bool:
        before = self.program.native.work
        least = max(found.budget + 1, self._least_bytes)
        lowest = lowest_on_demand(self.program, least, found.execution.peak_bytes, max_work // 2)
        if lowest is not None:
            left = max_work - (self.program.native.work - before)
            found.offer(improve(self.program, lowest, lowest.peak_bytes, left))
        return lowest is not None

    def _is_solved_exactly(self, found: BestPlan, effort: RecomputeEffort) -> bool:
        program = self.program
        peak, work = self.baseline.peak_bytes, effort.state_work
        searched = search_exactly(
            program.problem, program.cost, found.budget, peak, space=program.space, order=program.order, max_work=work
        )
        found.add_exact_result(program, searched)
        return found.is_exact

    def _improve(self, found: BestPlan, max_work: int) -> None:
        if found.fits and found.execution is not found.improved:
            found.offer(improve(self.program, found.execution, found.budget, max_work))
            found.improved = found.execution

    def _trade_at_peak(self, found: BestPlan) -> None:
        place = int(self.baseline.live.argmax())
        found.raise_bound(self.program, trade_at(self.program, self._needs, place, found.budget).bound, place)
        self._trade_with_room(found, place)

    def _plan_layers(self, found: BestPlan, effort: RecomputeEffort, max_cost: float) -> None:
        place = int(self.baseline.stages[int(self.baseline.live.argmax())])
        layers = repeated_layers(self.program, place)
        if layers is None:
            return
        if self._is_large:
            work = effort.run_work // 2
            settle_layers(self.program, self._rising, self._needs, layers, place, found, work, max_cost)
            return
        for least, staying in segments_of(self.program, self._needs, layers, place, found.budget):
            if least < min(max_cost, found.cost, float(self.program.cost.sum())):
                self._trade_with_room(found, place, staying, max_cost)

    def _trade_with_room(
        self,
        found: BestPlan,
        place: Place,
        staying: NDArray[np.bool_] | None = None,
        max_cost: float = float("inf"),
    ) -> None:
        """Offer choices at a place, leaving free as much as the last one exceeded the budget elsewhere.

        End if a choice over the budget costs as much as the best plan: more room costs more.
        """
        too_little, enough, reserve = 0, found.budget, 0
        step = 0 if staying is None else found.budget // _RESERVE_STEPS
        for _ in range(_MAX_RESERVES):
            drops = trade_at(self._rising, self._needs, place, found.budget - reserve, staying).choices[0]
            execution = self.program.execute(drops)
            found.offer(execution, drops)
            over = execution.peak_bytes - found.budget
            if staying is not None and over > MAX_EXCESS * found.budget:
                return
            if over > 0 and execution.extra_cost >= min(max_cost, found.cost):
                return
            if over <= 0:
                enough = reserve
            else:
                too_little = reserve
            if enough - too_little <= max(1, step) or (over <= 0 and reserve == 0) or -step <= over <= 0:
                return
            guess = reserve + over
            reserve = guess if too_little < guess < enough else (too_little + enough) // 2

    def _checkpoint(self, found: BestPlan) -> None:
        for drops in checkpoint_drops(self.program, int(self.baseline.stages[int(self.baseline.live.argmax())])):
            found.offer(self.program.execute(drops), drops)

    def _trade(self, found: BestPlan, effort: RecomputeEffort) -> None:
        place = int(self.baseline.live.argmax())
        places: list[int] = []
        tried: set[bytes] = set()
        while place not in places and len(places) < _MAX_TRADED:
            places.append(place)
            for reserve in _RESERVES:
                budget = found.budget - int(reserve * found.budget)
                trade = trade_at(self.program, self._needs, place, budget)
                if reserve == 0.0:
                    found.raise_bound(self.program, trade.bound, place)
                    place = self._worst_place(self.program.execute(trade.choices[0]))
                for drops in trade.choices:
                    if (key := drops.listed.tobytes() + drops.moments.tobytes()) not in tried:
                        tried.add(key)
                        repair(self.program, found, drops, effort.play_work - found.play_work)
                if found.is_within(effort.relative_gap) or found.play_work > effort.play_work:
                    return

    def _worst_place(self, execution: Execution) -> int:
        is_first = self.program.places[execution.runs] == execution.stages
        return int(execution.stages[int(np.where(is_first, execution.live, 0).argmax())])

    def result(self, found: BestPlan, effort: RecomputeEffort, *, exact: bool) -> RecomputeResult:
        """Return the result with a proven bound."""
        self._solving.certify(found, effort)
        exact = exact and (solver.is_available() or found.is_exact)
        execution = found.execution
        return RecomputeResult(
            plan=self.program.plan(execution),
            drops=found.drops,
            budget_bytes=found.budget,
            peak_bytes=execution.peak_bytes,
            fits=found.fits,
            base_cost=float(self.program.cost.sum()),
            extra_cost=execution.extra_cost,
            extra_cost_bound=min(found.bound, execution.extra_cost) if found.fits else found.bound,
            solver_bound=found.solver_bound,
            provable_cost=self._provable(found),
            floor=self.floor,
            peak_bound=max(self._least_bytes, found.peak_bound),
            method="exact" if exact else "greedy",
            work=found.solver_work,
            places=tuple(found.places),
            shortfall=None
            if found.fits
            else explain_shortfall(self.program, self.floor, found.budget, execution.peak_bytes, found.bound),
        )

    def _provable(self, found: BestPlan) -> ProvableCost | None:
        bound = min(found.bound, found.execution.extra_cost) if found.fits else found.bound
        if not found.bound_places or self.program.space != 0:
            return None
        return ProvableCost(
            order=tuple(self.program.order.tolist()),
            costs=tuple(self.program.cost.tolist()),
            places=found.bound_places,
            budget_bytes=found.budget,
            in_place=self.program.problem.in_place,
            at_least=bound if bound < float("inf") else None,
        )
