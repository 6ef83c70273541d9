"""The search for the least extra cost within a budget: cheap plans first, then bounds and better plans by turns."""

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import RECOMPUTE_EFFORTS, RecomputeEffort
from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import Place
from lowtide.engine.recompute import solver
from lowtide.engine.recompute.all_runs import search_all_runs
from lowtide.engine.recompute.checkpoints import checkpoint_drops
from lowtide.engine.recompute.choose_drops import leaning, trade_at
from lowtide.engine.recompute.floor import Floor, floor_of, needs_by_place
from lowtide.engine.recompute.found import Found, repair
from lowtide.engine.recompute.gathering import least_bytes
from lowtide.engine.recompute.layer_plans import HOPELESS, segments_of, settle_layers
from lowtide.engine.recompute.neighborhoods import improve
from lowtide.engine.recompute.on_demand import lowest_on_demand, on_demand
from lowtide.engine.recompute.program import Drops, Execution, Ints, Program
from lowtide.engine.recompute.result import RecomputeResult, explain_shortfall
from lowtide.engine.recompute.segments import repeated_layers
from lowtide.engine.recompute.settle import settle_from
from lowtide.engine.recompute.solver_search import SolverSearch
from lowtide.engine.recompute.telling_places import telling_places

_RESERVES = (0.0, 0.03, 0.07, 0.12, 0.2, 0.3, 0.45)
"""Parts of the budget left free at a place, for what runs again after it needs memory too."""
_MOST_TRADED = 3
_MOST_RESERVES = 12
"""Plays that look for the least reserve with which the choice at one place fits everywhere."""
_WORTH_SETTLING = 0.2
"""Plans of drops this close to their bound are not worth looking for plans of runs."""
_UNTIL_IT_FITS = 4
"""How many times the work for plans of drops is done, at most, as long as none fits."""
_LARGE = 10_000
"""Programs of more ops are searched no further where repeated layers alone come near the bound."""
_NEAR_FOR_LARGE = 3
"""How near that is, in gaps at which every search ends."""
_MOST_ON_DEMAND = 4_000
"""Of programs of more ops, what is missing is made on demand in vain: that takes more work than there is."""
_ROOM_ABOVE_LEAST = 200
"""The part of what every plan needs at least that a plan for it may need more: to the byte few plans are found."""
_GOALS = 3
"""Goals above what every plan needs that are planned for where no plan meets a budget."""
_EFFORT_FOR_A_GOAL = RECOMPUTE_EFFORTS["fast"].part(4)
"""What each of these takes, whatever the effort: they tell how low a peak can get, not how cheaply."""
_NO_GAP = 0.0001
"""A gap so small that nothing more is tried."""


class BudgetSearch:
    """Plans one program for any number of budgets; what does not depend on the budget is derived once.

    A plan is good enough at an extra cost of `negligible` above its bound, as a share of running every op once.
    """

    def __init__(self, program: Program, negligible: float = 0.0) -> None:
        self.program = program
        self._negligible = negligible * float(program.cost.sum())
        self.floor: Floor = floor_of(program)
        self._least_bytes = least_bytes(program, self.floor)
        self.untouched: Execution = program.execute(Drops())
        self._needs = needs_by_place(program)
        self._solving = SolverSearch(program, self.untouched)
        self._leaning = leaning(program)
        self._is_large = len(program.order) > _LARGE

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
        found = Found(budget, Drops(), self.untouched, negligible=self._negligible)
        if self._least_bytes > budget:
            found.bound = float("inf")
            self._go_low(found, effort)
        elif not found.fits and not (exact and self._is_settled(found, effort)):
            found.is_open = True
            fine, alike = (Found(budget, Drops(), self.untouched, negligible=self._negligible) for _ in range(2))
            self._trade_finely(fine)
            alike.offer(fine.played_drops, fine.drops)
            alike.bound = fine.bound
            if not fine.is_within(_NO_GAP):
                self._replicate(alike, effort)
                found.is_of_layers = self._is_large and alike.is_within(_NEAR_FOR_LARGE * effort.relative_gap)
            if not fine.is_within(_NO_GAP) and not found.is_of_layers:
                repair(self.program, found, Drops(), effort.play_work * _UNTIL_IT_FITS)
                self._trade(found, effort)
                self._checkpoint(found)
            found.bound = max(found.bound, fine.bound)
            found.offer(fine.played_drops, fine.drops)
            found.is_rough = not found.is_of_layers and not found.is_within(_WORTH_SETTLING)
            found.offer(alike.played_drops, alike.drops)
            found.offer(alike.execution)
        return found

    def plan_of_runs(self, runs: Ints, known: Found, effort: RecomputeEffort) -> Found:
        """Return the plan of given runs, with first runs in base order, less what the budget can spare of them.

        It has the bounds that are known for the budget.
        """
        found = Found(
            known.budget,
            Drops(),
            self.untouched,
            known.bound,
            known.peak_bound,
            is_open=known.is_open,
            telling=known.telling,
            negligible=self._negligible,
        )
        found.offer(self.program.replay(runs))
        if found.fits:
            found.offer(self.program.replay(self.program.native.trim_runs(runs, known.budget, effort.run_work // 4)))
        return found

    def settle(self, found: Found, effort: RecomputeEffort) -> None:
        """Offer plans as sequences of runs, where those of drops are far from their bound."""
        if found.is_open and found.is_rough:
            self._settle(found, effort)

    def close_gap(self, found: Found, effort: RecomputeEffort) -> None:
        """Let the solver bound the cost and find better plans, where it is installed and a gap is left."""
        self.weigh(found, effort)
        if found.is_open and found.may_fit and not found.is_within(effort.relative_gap) and solver.is_available():
            if not found.is_of_layers:
                self._solving.close_gap(found, effort)
            if not found.is_within(effort.relative_gap):
                self._improve(found, effort.run_work // 4)

    def bound_more(self, found: Found, effort: RecomputeEffort, *, exact: bool) -> None:
        """Raise the bound of the plan that was chosen, where a gap is left: by the places that say most together."""
        self.weigh(found, effort)
        if (
            exact
            and found.telling
            and not found.is_of_layers
            and not found.is_within(effort.relative_gap)
            and solver.is_available()
        ):
            self._solving.bound_more(found, effort)

    def weigh(self, found: Found, effort: RecomputeEffort) -> None:
        """Raise the bound to what any place alone shows, where a gap is left; once a budget."""
        if not found.is_open or found.telling is not None or not found.may_fit or found.is_within(effort.relative_gap):
            return
        found.telling = telling_places(self.program, self._needs, self.untouched.live, found.budget)
        found.raise_bound(self.program, found.telling[0].bound)

    def _go_low(self, found: Found, effort: RecomputeEffort) -> None:
        """If the budget is below what every plan needs, offer how low a peak is found on the way there.

        Where only operands cannot be gathered within it, the budget is near enough for much work to pay. Then plans are
        made for more than the budget, unless prices are worth little: what is fused later needs something else in any
        case, so that this is for programs alone that are too large for what went before.
        """
        lowest = Found(self._least_bytes, found.drops, found.played_drops)
        repair(self.program, lowest, Drops(), effort.play_work * _UNTIL_IT_FITS)
        found.offer(lowest.played_drops, lowest.drops)
        is_near = self.floor.peak_bytes <= found.budget
        is_lowered = self._lower(found, effort.run_work * 4 if is_near else effort.run_work // 4)
        is_in_vain = not is_lowered and len(self.program.order) > _MOST_ON_DEMAND
        if is_in_vain or not self._negligible:
            self._approach(found)

    def _approach(self, found: Found) -> None:
        """Offer plans for goals between what every plan needs and what is reached, from below, each halfway."""
        missed, goal = self._least_bytes, self._least_bytes + self._least_bytes // _ROOM_ABOVE_LEAST
        for _ in range(_GOALS):
            if found.execution.peak_bytes <= goal:
                return
            tried = self.begin(goal, _EFFORT_FOR_A_GOAL, exact=False)
            self.settle(tried, _EFFORT_FOR_A_GOAL)
            found.offer(tried.execution)
            if found.execution.peak_bytes > goal:
                missed = goal
            goal = (missed + found.execution.peak_bytes) // 2

    def _lower(self, found: Found, max_work: int) -> bool:
        """If nothing fits, offer a plan of a lower peak, at less cost for that peak where work is left; tell if any."""
        before = self.program.native.work
        least = max(found.budget + 1, self._least_bytes)
        lowest = lowest_on_demand(self.program, least, found.execution.peak_bytes, max_work // 2)
        if lowest is not None:
            left = max_work - (self.program.native.work - before)
            found.offer(improve(self.program, lowest, lowest.peak_bytes, left))
        return lowest is not None

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

    def _trade_finely(self, found: Found) -> None:
        """Offer choices at the place where the untouched program needs most, with ties told apart."""
        place = int(self.untouched.live.argmax())
        found.raise_bound(self.program, trade_at(self.program, self._needs, place, found.budget).bound)
        self._trade_with_room(found, place)

    def _replicate(self, found: Found, effort: RecomputeEffort) -> None:
        """Offer what is best for one of repeated layers, for as many of them as the budget asks for; see `segments`."""
        place = int(self.untouched.stages[int(self.untouched.live.argmax())])
        layers = repeated_layers(self.program, place)
        if layers is None:
            return
        if self._is_large:
            settle_layers(self.program, self._leaning, self._needs, layers, place, found, effort.run_work // 2)
            return
        for least, staying in segments_of(self.program, self._needs, layers, place, found.budget):
            if least < (found.execution.extra_cost if found.fits else self.program.cost.sum()):
                self._trade_with_room(found, place, staying)

    def _trade_with_room(self, found: Found, place: Place, staying: NDArray[np.bool_] | None = None) -> None:
        """Offer choices at a place, with as much left free there as the play of the last choice was over the budget
        elsewhere; with buffers that stay, as long as that is near."""
        too_little, enough, reserve = 0, found.budget, 0
        for _ in range(_MOST_RESERVES):
            drops = trade_at(self._leaning, self._needs, place, found.budget - reserve, staying).choices[0]
            execution = self.program.execute(drops)
            found.offer(execution, drops)
            over = execution.peak_bytes - found.budget
            if staying is not None and over > HOPELESS * found.budget:
                return
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
                    found.raise_bound(self.program, trade.bound)
                    place = self._worst_place(self.program.execute(trade.choices[0]))
                most = effort.play_work * (1 if found.fits else _UNTIL_IT_FITS)
                for drops in trade.choices:
                    repair(self.program, found, drops, most - found.played)
                if found.is_within(effort.relative_gap) or found.played > most:
                    return

    def _worst_place(self, execution: Execution) -> int:
        is_first = self.program.places[execution.runs] == execution.stages
        return int(execution.stages[int(np.where(is_first, execution.live, 0).argmax())])

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
            peak_bound=max(self._least_bytes, found.peak_bound),
            method="exact" if exact else "greedy",
            work=found.work,
            places=tuple(found.places),
            shortfall=None
            if found.fits
            else explain_shortfall(self.program, self.floor, found.budget, execution.peak_bytes, found.bound),
        )
