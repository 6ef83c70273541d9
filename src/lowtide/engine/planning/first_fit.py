"""Whether a program fits a budget, without the search for the best plan."""

from dataclasses import dataclass

from lowtide.core.progress import Report
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.graph import Graph
from lowtide.engine.offload import HOST
from lowtide.engine.plan import Plan
from lowtide.engine.planning.draft import Draft
from lowtide.engine.planning.find_plan import baseline, find_plan
from lowtide.engine.planning.plan_state import (
    StateSearch,
    allowed_forms,
    excludes_all_forms,
    is_excluded,
    may_move_state,
)
from lowtide.engine.planning.program import Form, Program
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFit:
    """Whether a plan that fits was found."""

    fits: bool
    missed: Result | None = None
    """The plan that misses the budget by least; None if a plan fits or lower bounds exclude all."""
    rounds: bool = False
    """Whether results of that plan are equal up to rounding only."""


def cannot_fit(program: Program, settings: PlanSettings) -> bool:
    """Return whether lower bounds exclude every plan that the settings allow, forms in chunks included.

    False without recomputation and offload: such plans take no longer than their bounds.
    """
    if not settings.techniques & NEED_BUDGET:
        return False
    states = [program]
    if may_move_state(program, settings):
        states.append(StateSearch(program, settings, None, None).with_least_on_device)
    return all(excludes_all_forms(state, settings) for state in states)


def first_fit(
    program: Program, settings: PlanSettings, progress: Report | None = None, *, in_chunks_only: bool = False
) -> FirstFit:
    """Return whether a plan fits; ends the search at the first one. `in_chunks_only` skips the unmodified form.

    All state that may be on the host is there: a plan never needs less of the device with less state on the host.
    """
    if not may_move_state(program, settings):
        return _first_fit(program, settings, progress, in_chunks_only=in_chunks_only)
    search = StateSearch(program, settings, progress, None)
    moved = search.with_least_on_device
    found = _first_fit(moved, search.settings_for(moved), progress, in_chunks_only=in_chunks_only)
    missed = found.missed
    if missed is None:
        return found
    if missed.shortfall is not None and missed.shortfall.space == HOST:
        search.bisect(0)
        return FirstFit(fits=search.best.shortfall is None, missed=search.best)
    return FirstFit(fits=False, missed=search.compared(missed, moved))


def _first_fit(
    program: Program, settings: PlanSettings, progress: Report | None, *, in_chunks_only: bool = False
) -> FirstFit:
    missed: list[Result] = []
    for form in allowed_forms(program, settings):
        unmodified = None if form.name == "unmodified" else program.graph
        if unmodified is None and in_chunks_only:
            continue
        start = baseline(form.graph, settings, unmodified)
        if is_excluded(start):
            continue
        try:
            found = find_plan(form.graph, settings, unmodified, progress, _Stop(start), start=start)
        except _FitsError:
            return _fitting(form)
        if found.shortfall is None:
            return _fitting(form)
        missed.append(found)
    return FirstFit(fits=False, missed=min(missed, key=_missed_bytes, default=None))


def _fitting(form: Form) -> FirstFit:
    return FirstFit(fits=True, rounds=not form.is_exact or bool(form.graph.updates_on_host.any()))


class _FitsError(Exception):
    """Ends a search whose plan fits."""


@dataclass(frozen=True, slots=True)
class _Stop:
    start: Draft

    def __call__(self, _graph: Graph, plan: Plan) -> None:
        if self.start.budget.excess_bytes(plan.peak_bytes) == 0:
            raise _FitsError


def _missed_bytes(result: Result) -> int:
    return 0 if result.shortfall is None else result.shortfall.missed_bytes
