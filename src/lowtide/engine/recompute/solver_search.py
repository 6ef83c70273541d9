"""Improve plans and bounds with a solver that counts memory at more and more places."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import RecomputeEffort
from lowtide.core.index_spaces import Place
from lowtide.engine.recompute import solver
from lowtide.engine.recompute.best_plan import BestPlan, repair
from lowtide.engine.recompute.certified_bound import certify
from lowtide.engine.recompute.choose_drops import PlaceBound
from lowtide.engine.recompute.place_model import BuiltModel, PlaceModel
from lowtide.engine.recompute.program import Execution, OrderedProgram
from lowtide.engine.recompute.run_sequences import Pick, settle_and_trim

_ROUGH_GAP = 0.03
_MAX_STALLED_ROUNDS = 3
_MAX_FAILURES = 2
_EASY_GAP = 0.2
_NEAR_GAP = 0.1
_ENOUGH = 0.95
"""Share of the gap to solve to; leaves room for rounding."""
_MAX_PARTNERS = 12
_MAX_STRONGEST = 3
_LEAST_RAISE = 1.01
_SPACING = 60


class SolverSearch:
    """Closes the gap between a plan and its bound with a solver."""

    def __init__(self, program: OrderedProgram, baseline: Execution) -> None:
        self.program = program
        self._baseline = baseline
        self._model: PlaceModel | None = None

    def close_gap(self, found: BestPlan, effort: RecomputeEffort) -> None:
        """Solve over more and more places until the gap is closed."""
        model = self._model = self._model or PlaceModel(self.program)
        is_easy = found.is_within(_EASY_GAP)
        self._choose_places(found, model, effort, is_easy=is_easy)
        gap = effort.relative_gap / 2 if is_easy else max(_ROUGH_GAP, effort.relative_gap)
        stalled = 0
        for _ in range(effort.rounds):
            before = found.progress()
            built = model.build(found.places, found.budget)
            left = self._solver_work(found, effort, is_easy) - found.solver_work
            left = left // 3 if gap > effort.relative_gap else left * 2 // 3
            solved = self._solve(found, built, gap, left)
            if solved.solution is None:
                return
            execution = self._offer_solution(found, built, solved.solution, effort)
            if found.is_within(effort.relative_gap) or found.solver_work >= self._solver_work(found, effort, is_easy):
                return
            stalled = 0 if found.has_improved_since(before) else stalled + 1
            if stalled == _MAX_STALLED_ROUNDS and not is_easy:
                return
            place = self._next_place(execution, found)
            if place is not None:
                found.places = sorted([*found.places, place])
            elif gap > effort.relative_gap:
                gap = effort.relative_gap / 2
            elif execution.peak_bytes <= found.budget:
                self._bound_again(found, built, effort)
                return
            else:
                self._leave_room(found, model, execution, effort)
                return

    def bound_more(self, found: BestPlan, effort: RecomputeEffort) -> None:
        """Raise the bound, from the strongest places on. A few, solved well, bound more than many."""
        model = self._model = self._model or PlaceModel(self.program)
        most = found.solver_work + effort.solver_work // 4
        self._choose_strongest(found, model, effort.solver_work // 8)
        gap, best, failures = _ENOUGH * effort.relative_gap, 0.0, 0
        while found.solver_work < most and failures < _MAX_FAILURES:
            built = model.build(found.places, found.budget)
            solved = self._solve(found, built, gap, most - found.solver_work)
            if solved.solution is None or found.is_within(effort.relative_gap):
                return
            place = self._next_place(self.program.execute(built.drops(self.program, solved.solution)), found)
            if place is None:
                return
            found.places = sorted([*found.places, place])
            failures = 0 if solved.claimed_bound > best else failures + 1
            best = max(best, solved.claimed_bound)

    def certify(self, found: BestPlan, effort: RecomputeEffort) -> None:
        """Prove the solver's bound as far as the work limit allows."""
        goal = found.goal_to_certify(self.program)
        if goal <= found.bound or not found.claimed_places or self._model is None:
            return
        milp = self._model.build(found.claimed_places, found.budget).milp
        certified = certify(milp, goal, max_work=int(effort.certify_share * found.solver_work))
        found.solver_work += certified.work
        if certified.at_least > found.bound:
            found.raise_to_certified(self.program, certified.at_least, found.claimed_places)

    def _choose_places(self, found: BestPlan, model: PlaceModel, effort: RecomputeEffort, *, is_easy: bool) -> None:
        found.places = [int(self._baseline.live.argmax())]
        if not is_easy:
            self._choose_strongest(found, model, self._solver_work(found, effort, is_easy) // 4)

    def _choose_strongest(self, found: BestPlan, model: PlaceModel, max_work: int) -> None:
        if found.place_bounds and found.fits:
            found.places, bound, work = strongest_places(model, found.place_bounds, found.budget, max_work)
            found.solver_work += work
            found.claim_bound(self.program, bound, found.places)

    def _solve(self, found: BestPlan, built: BuiltModel, gap: float, max_work: int) -> solver.Solved:
        known = built.solution(self.program, found.execution) if found.fits else None
        solved = solver.solve(built.milp, known, relative_gap=gap, max_work=max_work)
        found.solver_work += solved.work
        found.claim_bound(self.program, solved.claimed_bound, built.places)
        return solved

    def _solver_work(self, found: BestPlan, effort: RecomputeEffort, is_easy: bool) -> int:
        return effort.solver_work if is_easy or found.is_within(_NEAR_GAP) else effort.solver_work // 4

    def _bound_again(self, found: BestPlan, built: BuiltModel, effort: RecomputeEffort) -> None:
        gap, work = _ENOUGH * effort.relative_gap, effort.solver_work // 4
        solved = solver.solve(built.milp, None, relative_gap=gap, max_work=work)
        found.solver_work += solved.work
        found.claim_bound(self.program, solved.claimed_bound, built.places)
        if solved.solution is not None:
            self._offer_solution(found, built, solved.solution, effort)

    def _offer_solution(
        self, found: BestPlan, built: BuiltModel, solution: NDArray[np.float64], effort: RecomputeEffort
    ) -> Execution:
        """Offer a solution's execution, repaired if needed; return it unrepaired."""
        drops = built.drops(self.program, solution)
        execution = self.program.execute(drops)
        found.offer(execution, drops)
        if execution.peak_bytes > found.budget:
            repair(self.program, found, drops, effort.play_work // effort.rounds)
            for pick in (Pick.LAST, Pick.WORST):
                _, settled = settle_and_trim(
                    self.program,
                    execution.runs,
                    found.budget,
                    pick=pick,
                    max_cost=found.max_cost_to_trim,
                    max_work=effort.run_work // effort.rounds,
                )
                found.offer(settled)
        return execution

    def _leave_room(self, found: BestPlan, model: PlaceModel, execution: Execution, effort: RecomputeEffort) -> None:
        """If only recomputed runs exceed the budget, leave as much free at the place before."""
        reserves: dict[int, int] = {}
        for _ in range(effort.rounds):
            over = execution.peak_bytes - found.budget
            stage = int(execution.stages[int(execution.live.argmax())])
            before = bisect_left(found.places, stage) - 1
            if over <= 0 or before < 0 or found.solver_work >= effort.solver_work:
                return
            place = found.places[before]
            reserves[place] = reserves.get(place, 0) + over
            built = model.build(found.places, found.budget, reserves)
            left = effort.solver_work - found.solver_work
            solved = solver.solve(built.milp, None, relative_gap=2 * effort.relative_gap, max_work=left)
            found.solver_work += solved.work
            if solved.solution is None:
                return
            execution = self._offer_solution(found, built, solved.solution, effort)
            if found.is_within(effort.relative_gap):
                return

    def _next_place(self, execution: Execution, found: BestPlan) -> int | None:
        is_first = self.program.places[execution.runs] == execution.stages
        counted = np.isin(execution.stages, found.places)
        for eligible in (is_first & ~counted, ~counted & (execution.stages < len(self.program.order))):
            over = np.where(eligible, execution.live, 0)
            if over.size and over.max() > found.budget:
                return int(execution.stages[int(over.argmax())])
        return None


def strongest_places(
    model: PlaceModel, bounds: Sequence[PlaceBound], budget_bytes: int, max_work: int
) -> tuple[list[Place], float, int]:
    """Return up to three places with the highest joint bound, the bound, and the work done.

    More places weaken the linear relaxation of `place_model`.
    """
    places, best, work = [bounds[0].place], bounds[0].bound, 0
    partners = _spaced(bounds, len(model.order) // _SPACING + 1)
    while len(places) < _MAX_STRONGEST:
        known, added = best, None
        for partner in partners:
            if partner in places or work > max_work:
                continue
            milp = model.build(sorted([*places, partner]), budget_bytes).milp
            bound, steps = solver.relax(milp, max_work=max_work - work)
            work += steps
            if bound > best:
                best, added = bound, partner
        if added is None or best < _LEAST_RAISE * known:
            break
        places = sorted([*places, added])
    return places, best, work


def _spaced(bounds: Sequence[PlaceBound], distance: int) -> list[Place]:
    chosen: list[Place] = []
    for known in bounds:
        if all(abs(known.place - place) >= distance for place in chosen):
            chosen.append(known.place)
            if len(chosen) > _MAX_PARTNERS:
                break
    return chosen
