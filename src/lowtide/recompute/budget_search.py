"""The search for the least extra cost within a budget: cheap plans first, then bounds and better plans by turns."""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from lowtide.effort import RecomputeEffort
from lowtide.errors import UsageError
from lowtide.recompute import solver
from lowtide.recompute.all_runs import search_all_runs
from lowtide.recompute.checkpoints import checkpoint_drops
from lowtide.recompute.choose_drops import drop_until_it_fits, leaning, trade_at
from lowtide.recompute.floor import Floor, floor_of, needs_by_place
from lowtide.recompute.found import Found
from lowtide.recompute.neighborhoods import improve
from lowtide.recompute.on_demand import lowest_on_demand, on_demand
from lowtide.recompute.place_model import BuiltModel, PlaceModel
from lowtide.recompute.program import Drops, Execution, Ints, Program
from lowtide.recompute.result import RecomputeResult, explain_shortfall
from lowtide.recompute.settle import Pick, settle_and_trim, settle_from
from lowtide.recompute.telling_places import telling_places, telling_together

_RESERVES = (0.0, 0.03, 0.07, 0.12, 0.2, 0.3, 0.45)
"""Parts of the budget left free at a place, for what runs again after it needs memory too."""
_MOST_TRADED = 3
_MOST_RESERVES = 12
"""Plays that look for the least reserve with which the choice at one place fits everywhere."""
_ROUGH_GAP = 0.03
"""How good solutions are while many places are still missing."""
_MOST_STALLED = 3
"""Rounds without progress after which more are taken to be in vain."""
_EASY_GAP = 0.2
"""A first plan this close to its bound is not expected to need many places; others rarely close, and get less work."""
_NEAR_GAP = 0.1
"""Where plans have come this close, the solver may do all its work after all."""
NO_GAP = 0.0001
"""A gap so small that nothing more is tried."""
_ENOUGH = 0.95
"""A gap for the solver that leaves some room for rounding, as a part of the gap asked for."""


class BudgetSearch:
    """Plans one program for any number of budgets; what does not depend on the budget is derived once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.floor: Floor = floor_of(program)
        self.untouched: Execution = program.execute(Drops())
        self._needs = needs_by_place(program)
        self._model: PlaceModel | None = None
        self._leaning = leaning(program)

    def plan(self, budget: int, effort: RecomputeEffort, *, exact: bool) -> RecomputeResult:
        """Plan for one budget; see `plan_within_budget`."""
        found = self.begin(budget, effort, exact=exact)
        self.settle(found, effort)
        if exact:
            self.close_gap(found, effort)
        return self.result(found, exact=exact)

    def begin(self, budget: int, effort: RecomputeEffort, *, exact: bool) -> Found:
        """Return the best plan of drops, and what single places say; of small graphs the best of all, if `exact`."""
        if budget < 0:
            raise UsageError(
                f"a budget of {budget} bytes is below zero; persistent buffers alone may be over the budget"
            )
        found = Found(budget, Drops(), self.untouched)
        if self.floor.peak_bytes > budget:
            found.bound = float("inf")
            self._go_low(found, effort)
        elif not found.fits and not (exact and self._is_settled(found, effort)):
            found.is_open = True
            fine = Found(budget, Drops(), self.untouched)
            self._trade_finely(fine)
            if not fine.is_within(NO_GAP):
                self._repair(found, Drops(), effort.play_work)
                self._trade(found, effort)
                self._checkpoint(found)
            found.bound = max(found.bound, fine.bound)
            found.offer(fine.played_drops, fine.drops)
        return found

    def plan_of_runs(self, runs: Ints, known: Found, effort: RecomputeEffort) -> Found:
        """Return the plan of given runs, with first runs in base order, less what the budget can spare of them.

        It has the bounds that are known for the budget.
        """
        found = Found(
            known.budget, Drops(), self.untouched, known.bound, known.peak_bound, known.is_open, telling=known.telling
        )
        found.offer(self.program.replay(runs))
        if found.fits:
            found.offer(self.program.replay(self.program.native.trim_runs(runs, known.budget, effort.run_work // 4)))
        return found

    def settle(self, found: Found, effort: RecomputeEffort) -> None:
        """Offer plans as sequences of runs, where those of drops are far from their bound."""
        if found.is_open and not found.is_within(_EASY_GAP):
            self._settle(found, effort)

    def close_gap(self, found: Found, effort: RecomputeEffort) -> None:
        """Let the solver bound the cost and find better plans, where it is installed and a gap is left."""
        self.weigh(found, effort)
        if found.is_open and found.may_fit and not found.is_within(effort.relative_gap) and solver.is_available():
            self._close_the_gap(found, effort)
            if not found.is_within(effort.relative_gap):
                self._improve(found, effort.run_work // 4)

    def bound_again(self, found: Found, effort: RecomputeEffort, *, exact: bool) -> None:
        """Bound the cost of a plan for which that was not tried yet, such as one that came with its base order."""
        self.weigh(found, effort)
        if (
            exact
            and found.telling
            and not found.places
            and solver.is_available()
            and not found.is_within(effort.relative_gap)
        ):
            model = self._model = self._model or PlaceModel(self.program)
            self._choose_places(found, model, effort, is_easy=False)
            self._solve(found, model.build(found.places, found.budget), effort.relative_gap, effort.solver_work // 8)

    def weigh(self, found: Found, effort: RecomputeEffort) -> None:
        """Raise the bound to what any place alone shows, where a gap is left; once a budget."""
        if not found.is_open or found.telling is not None or not found.may_fit or found.is_within(effort.relative_gap):
            return
        found.telling = telling_places(self.program, self._needs, self.untouched.live, found.budget)
        found.bound = max(found.bound, self._rounded(found.telling[0].bound))

    def _go_low(self, found: Found, effort: RecomputeEffort) -> None:
        """If the budget is below the floor, offer how low greedy choice gets on the way to the floor."""
        lowest = Found(self.floor.peak_bytes, found.drops, found.played_drops)
        self._repair(lowest, Drops(), effort.play_work)
        found.offer(lowest.played_drops, lowest.drops)
        self._lower(found, effort.run_work // 4)

    def _lower(self, found: Found, max_work: int) -> None:
        """If nothing fits, offer a plan of a lower peak, at less cost for that peak where work is left."""
        before = self.program.native.work
        least = max(found.budget + 1, self.floor.peak_bytes)
        lowest = lowest_on_demand(self.program, least, found.execution.peak_bytes, max_work // 2)
        if lowest is not None:
            left = max_work - (self.program.native.work - before)
            found.offer(improve(self.program, lowest, lowest.peak_bytes, left))

    def _is_settled(self, found: Found, effort: RecomputeEffort) -> bool:
        """Search all runs of a small graph; returns whether nothing is left to find."""
        program = self.program
        peak, work = self.untouched.peak_bytes, effort.state_work
        searched = search_all_runs(
            program.problem, program.cost, found.budget, peak, space=program.space, order=program.order, max_work=work
        )
        found.take(program, searched)
        return found.is_settled

    def _settle(self, found: Found, effort: RecomputeEffort) -> None:
        """Offer plans as sequences of runs: settled from the best so far, then made on demand."""
        native, most = self.program.native, effort.run_work
        before = native.work
        settled = settle_from(
            self.program,
            [found.execution.runs],
            found.budget,
            max_cost=found.execution.extra_cost if found.fits else None,
            max_work=most // 2,
        )
        if settled is not None:
            found.offer(settled)
        self._improve(found, most - (native.work - before))
        left = most // 2 if not found.fits else most - (native.work - before)
        if left > 0:
            self._demand(found, left)
        if not found.fits:
            self._lower(found, most)

    def _demand(self, found: Found, max_work: int) -> None:
        """Offer a plan that makes again what is missing on demand, at less cost where work is left."""
        before = self.program.native.work
        demanded = on_demand(self.program, found.budget, max_work // 2)
        if demanded is not None:
            left = max_work - (self.program.native.work - before)
            found.offer(improve(self.program, demanded, found.budget, left))

    def _improve(self, found: Found, max_work: int) -> None:
        if found.fits:
            found.offer(improve(self.program, found.execution, found.budget, max_work))

    def _repair(self, found: Found, drops: Drops, max_work: int) -> None:
        """Offer the plan of given drops with more added until it fits."""
        before = self.program.native.work
        _, drops = drop_until_it_fits(self.program, drops, found.budget, max_work)
        found.offer(self.program.execute(drops), drops)
        found.played += self.program.native.work - before

    def _trade_finely(self, found: Found) -> None:
        """Offer choices at the place where the untouched program needs most, with ties told apart and as much left free
        there as the play of the last choice was over the budget elsewhere."""
        place = int(self.untouched.live.argmax())
        found.bound = max(found.bound, self._rounded(trade_at(self.program, self._needs, place, found.budget).bound))
        too_little, enough, reserve = 0, found.budget, 0
        for _ in range(_MOST_RESERVES):
            drops = trade_at(self._leaning, self._needs, place, found.budget - reserve).choices[0]
            execution = self.program.execute(drops)
            found.offer(execution, drops)
            over = execution.peak_bytes - found.budget
            if over <= 0:
                enough = reserve
            else:
                too_little = reserve
            if enough - too_little <= 1 or (over <= 0 and reserve == 0):
                return
            guess = reserve + over
            reserve = guess if too_little < guess < enough else (too_little + enough) // 2

    def _checkpoint(self, found: Found) -> None:
        """Offer textbook checkpointing, with the turn where the untouched program needs most."""
        for drops in checkpoint_drops(self.program, int(self.untouched.stages[int(self.untouched.live.argmax())])):
            found.offer(self.program.execute(drops), drops)

    def _trade(self, found: Found, effort: RecomputeEffort) -> None:
        """Bound the cost and find plans at single places: where the untouched program needs most, then where a plan
        that is best for that place alone does."""
        place = int(self.untouched.live.argmax())
        places: list[int] = []
        while place not in places and len(places) < _MOST_TRADED:
            places.append(place)
            for reserve in _RESERVES:
                budget = found.budget - int(reserve * found.budget)
                trade = trade_at(self.program, self._needs, place, budget)
                if reserve == 0.0:
                    found.bound = max(found.bound, self._rounded(trade.bound))
                    place = self._worst_place(self.program.execute(trade.choices[0]))
                for drops in trade.choices:
                    self._repair(found, drops, effort.play_work - found.played)
                if found.is_within(effort.relative_gap) or found.played > effort.play_work:
                    return

    def _worst_place(self, execution: Execution) -> int:
        is_first = self.program.places[execution.runs] == execution.stages
        return int(execution.stages[int(np.where(is_first, execution.live, 0).argmax())])

    def _close_the_gap(self, found: Found, effort: RecomputeEffort) -> None:
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

    def _choose_places(self, found: Found, model: PlaceModel, effort: RecomputeEffort, *, is_easy: bool) -> None:
        """Start where the untouched program needs most, or where a plan is far from its bound with what says most."""
        found.places = [int(self.untouched.live.argmax())]
        if found.telling and found.fits and not is_easy:
            most = self._solver_work(found, effort, is_easy) // 4
            found.places, bound, work = telling_together(model, found.telling, found.budget, most)
            found.work += work
            found.bound = max(found.bound, self._rounded(bound))

    def _solve(self, found: Found, built: BuiltModel, gap: float, max_work: int) -> solver.Solved:
        """Solve a program from the plan found, and raise the bound to what that shows."""
        known = built.solution(self.program, found.execution) if found.fits else None
        solved = solver.solve(built.milp, known, relative_gap=gap, max_work=max_work)
        found.work += solved.work
        found.bound = max(found.bound, self._rounded(solved.lower_bound))
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
        found.bound = max(found.bound, self._rounded(solved.lower_bound))
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
            self._repair(found, drops, effort.play_work // effort.rounds)
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

    def _rounded(self, bound: float) -> float:
        """Round a bound up to the next sum of costs, where all costs are multiples of the least one."""
        positive = self.program.cost[self.program.cost > 0]
        unit = float(positive.min(initial=np.inf))
        if not np.isfinite(unit + bound) or (positive % unit).any():
            return bound
        return float(np.ceil(bound / unit)) * unit

    def _next_place(self, execution: Execution, found: Found) -> int | None:
        """The place where an execution is most over budget, a first run if there is one, not counted yet."""
        is_first = self.program.places[execution.runs] == execution.stages
        counted = np.isin(execution.stages, found.places)
        for eligible in (is_first & ~counted, ~counted & (execution.stages < len(self.program.order))):
            over = np.where(eligible, execution.live, 0)
            if over.size and over.max() > found.budget:
                return int(execution.stages[int(over.argmax())])
        return None

    def result(self, found: Found, *, exact: bool) -> RecomputeResult:
        """Return what was found as a result; `exact` tells whether the solver and exact search were asked for."""
        exact = exact and (solver.is_available() or found.is_settled)
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
            floor=self.floor,
            peak_bound=max(self.floor.peak_bytes, found.peak_bound),
            method="exact" if exact else "greedy",
            work=found.work,
            places=tuple(found.places),
            shortfall=None
            if found.fits
            else explain_shortfall(self.program, self.floor, found.budget, execution.peak_bytes, found.bound),
        )
