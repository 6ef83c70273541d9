"""Mixed-integer programs over ever more places by turns with plays of their solutions: bounds and better plans."""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import RecomputeEffort
from lowtide.engine.recompute import solver
from lowtide.engine.recompute.found import Found, repair
from lowtide.engine.recompute.place_model import BuiltModel, PlaceModel
from lowtide.engine.recompute.program import Execution, Program
from lowtide.engine.recompute.settle import Pick, settle_and_trim
from lowtide.engine.recompute.telling_places import telling_together

_ROUGH_GAP = 0.03
"""How good solutions are while many places are still missing."""
_MOST_STALLED = 3
"""Rounds without progress after which more are taken to be in vain."""
_MOST_IN_VAIN = 2
"""Places in a row, counted for the bound alone, that do not tell more, after which no more are."""
_EASY_GAP = 0.2
"""A first plan this close to its bound is not expected to need many places; others rarely close, and get less work."""
_NEAR_GAP = 0.1
"""Where plans have come this close, the solver may do all its work after all."""
_ENOUGH = 0.95
"""A gap for the solver that leaves some room for rounding, as a part of the gap asked for."""


class SolverSearch:
    """Closes the gap between a plan and its bound by a solver; what does not depend on the budget is derived once."""

    def __init__(self, program: Program, untouched: Execution) -> None:
        self.program = program
        self._untouched = untouched
        self._model: PlaceModel | None = None

    def close_gap(self, found: Found, effort: RecomputeEffort) -> None:
        """Solve the program over ever more places until the cost is close to its bound, or the work is used up.

        Far from the bound, plays will show many more places to count, so that solutions need not be good at first:
        closing the gap over too few places is in vain.
        """
        model = self._model = self._model or PlaceModel(self.program)
        is_easy = found.is_within(_EASY_GAP)
        self._choose_places(found, model, effort, is_easy=is_easy)
        gap = effort.relative_gap / 2 if is_easy else max(_ROUGH_GAP, effort.relative_gap)
        stalled = 0
        for _ in range(effort.rounds):
            before = found.progress()
            built = model.build(found.places, found.budget)
            left = self._solver_work(found, effort, is_easy) - found.work
            left = left // 3 if gap > effort.relative_gap else left * 2 // 3
            solved = self._solve(found, built, gap, left)
            if solved.solution is None:
                return
            execution = self._offer_solution(found, built, solved.solution, effort)
            if found.is_within(effort.relative_gap) or found.work >= self._solver_work(found, effort, is_easy):
                return
            stalled = 0 if found.has_moved(before) else stalled + 1
            if stalled == _MOST_STALLED and not is_easy:
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

    def bound_more(self, found: Found, effort: RecomputeEffort) -> None:
        """Raise the bound of a plan by the places that say most together, and by what their solutions leave over.

        Of few places, well solved, more is known than of many: no more are counted where two did not tell more.
        """
        model = self._model = self._model or PlaceModel(self.program)
        most = found.work + effort.solver_work // 4
        self._choose_telling(found, model, effort.solver_work // 8)
        gap, best, in_vain = _ENOUGH * effort.relative_gap, 0.0, 0
        while found.work < most and in_vain < _MOST_IN_VAIN:
            built = model.build(found.places, found.budget)
            solved = self._solve(found, built, gap, most - found.work)
            if solved.solution is None or found.is_within(effort.relative_gap):
                return
            place = self._next_place(self.program.execute(built.drops(self.program, solved.solution)), found)
            if place is None:
                return
            found.places = sorted([*found.places, place])
            in_vain = 0 if solved.lower_bound > best else in_vain + 1
            best = max(best, solved.lower_bound)

    def _choose_places(self, found: Found, model: PlaceModel, effort: RecomputeEffort, *, is_easy: bool) -> None:
        """Start where the untouched program needs most, or where a plan is far from its bound with what says most."""
        found.places = [int(self._untouched.live.argmax())]
        if not is_easy:
            self._choose_telling(found, model, self._solver_work(found, effort, is_easy) // 4)

    def _choose_telling(self, found: Found, model: PlaceModel, max_work: int) -> None:
        """Start at the places that together say most, if single places were weighed."""
        if found.telling and found.fits:
            found.places, bound, work = telling_together(model, found.telling, found.budget, max_work)
            found.work += work
            found.raise_bound(self.program, bound)

    def _solve(self, found: Found, built: BuiltModel, gap: float, max_work: int) -> solver.Solved:
        """Solve a program from the plan found, and raise the bound to what that shows."""
        known = built.solution(self.program, found.execution) if found.fits else None
        solved = solver.solve(built.milp, known, relative_gap=gap, max_work=max_work)
        found.work += solved.work
        found.raise_bound(self.program, solved.lower_bound)
        return solved

    def _solver_work(self, found: Found, effort: RecomputeEffort, is_easy: bool) -> int:
        """Return how much work the solver may do as things stand."""
        return effort.solver_work if is_easy or found.is_within(_NEAR_GAP) else effort.solver_work // 4

    def _bound_again(self, found: Found, built: BuiltModel, effort: RecomputeEffort) -> None:
        """Where a solution plays within the budget and only the bound is missing, let the solver search in another way,
        from no plan."""
        gap, work = _ENOUGH * effort.relative_gap, effort.solver_work // 4
        solved = solver.solve(built.milp, None, relative_gap=gap, max_work=work)
        found.work += solved.work
        found.raise_bound(self.program, solved.lower_bound)
        if solved.solution is not None:
            self._offer_solution(found, built, solved.solution, effort)

    def _offer_solution(
        self, found: Found, built: BuiltModel, solution: NDArray[np.float64], effort: RecomputeEffort
    ) -> Execution:
        """Play a solution, and repair it where it needs more than the budget; returns the play of it as it is."""
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
                    weights=self.program.cost,
                    pick=pick,
                    reserve=0.0,
                    max_cost=found.most_worth_trimming,
                    max_work=effort.run_work // effort.rounds,
                )
                found.offer(settled)
        return execution

    def _leave_room(self, found: Found, model: PlaceModel, execution: Execution, effort: RecomputeEffort) -> None:
        """Find better plans where only what runs again is over budget: leave as much free at the place before it."""
        reserves: dict[int, int] = {}
        for _ in range(effort.rounds):
            over = execution.peak_bytes - found.budget
            stage = int(execution.stages[int(execution.live.argmax())])
            before = bisect_left(found.places, stage) - 1
            if over <= 0 or before < 0 or found.work >= effort.solver_work:
                return
            place = found.places[before]
            reserves[place] = reserves.get(place, 0) + over
            built = model.build(found.places, found.budget, reserves)
            left = effort.solver_work - found.work
            solved = solver.solve(built.milp, None, relative_gap=2 * effort.relative_gap, max_work=left)
            found.work += solved.work
            if solved.solution is None:
                return
            execution = self._offer_solution(found, built, solved.solution, effort)
            if found.is_within(effort.relative_gap):
                return

    def _next_place(self, execution: Execution, found: Found) -> int | None:
        """The place where an execution is most over budget, a first run if there is one, not counted yet."""
        is_first = self.program.places[execution.runs] == execution.stages
        counted = np.isin(execution.stages, found.places)
        for eligible in (is_first & ~counted, ~counted & (execution.stages < len(self.program.order))):
            over = np.where(eligible, execution.live, 0)
            if over.size and over.max() > found.budget:
                return int(execution.stages[int(over.argmax())])
        return None
